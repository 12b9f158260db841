# SPDX-License-Identifier: Apache-2.0
"""What of a run on a card is done, so that a second run in the same folder goes on with what is missing."""

import json
import os


class Progress:
    """Rows of the report, in the order of their first appearance; on the disk after each."""

    def __init__(self, folder, what):
        """`what` says what is checked: of something else nothing is taken over."""
        self.path, self.what, self.rows, self.error = f"{folder}/progress.json", what, {}, ""
        self.taken_over = self.forgotten = 0
        try:
            with open(self.path, encoding="utf-8") as file:
                before = json.load(file)
        except (OSError, ValueError):
            return
        if before.get("what") != what:
            self.forgotten = len(before.get("rows", []))
            return
        self.rows = {tuple(row[:2]): row for row in before["rows"] if row[2].startswith("ok")}
        self.taken_over = len(self.rows)

    def is_done(self, build, step):
        return (build, step) in self.rows

    def add(self, row):
        self.rows[tuple(row[:2])] = row
        try:
            with open(self.path + ".new", "w", encoding="utf-8") as file:
                json.dump({"what": self.what, "rows": list(self.rows.values())}, file, indent=0)
            os.replace(self.path + ".new", self.path)
        except OSError as error:
            self.error = error.strerror
