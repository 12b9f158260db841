#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That scripts/check_includes.py finds arrows that point back and files that include one another."""

import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = """## The folders

| Folder | What is in it | Knows of |
|---|---|---|
| `core/` | views | nothing |
| `plan/` | passes | core |
| `plan/deep/` | more | core, plan, door.hpp |

## More

| `core/` | another table | plan |
"""


class Includes(unittest.TestCase):
    def complaints(self, headers, table=TABLE):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(f"{root}/docs")
            with open(f"{root}/docs/ARCHITECTURE.md", "w", encoding="utf-8") as file:
                file.write(table)
            for path, others in headers.items():
                path = f"{root}/include/warprank/{path}"
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write("#pragma once\n" + "".join(f'#include "warprank/{other}"\n' for other in others))
            done = subprocess.run([sys.executable, f"{ROOT}/scripts/check_includes.py", "--root", root],
                                  stdout=subprocess.PIPE, text=True)
        lines = done.stdout.splitlines()
        self.assertEqual(done.returncode != 0, len(lines) != 1 or not headers, done.stdout)
        return lines[:-1]

    def test_what_the_table_allows_passes(self):
        self.assertEqual(self.complaints({
            "core/view.hpp": [], "plan/plan.hpp": ["core/view.hpp"], "plan/below/pass.hpp": ["plan/plan.hpp"],
            "plan/deep/one.hpp": ["plan/plan.hpp", "core/view.hpp", "door.hpp"], "door.hpp": ["core/view.hpp"]}), [])

    def test_an_arrow_back_is_named_with_its_line(self):
        self.assertEqual(
            self.complaints({"core/view.hpp": ["core/text.hpp", "plan/plan.hpp"], "core/text.hpp": [],
                             "plan/plan.hpp": ["plan/deep/one.hpp"], "plan/deep/one.hpp": ["other.hpp"]}),
            ["core/view.hpp:3: includes plan/plan.hpp: expected one of core/ or of what it knows of (nothing)",
             "plan/deep/one.hpp:2: includes other.hpp: expected one of plan/deep/ or of what it knows of "
             "(core, door.hpp, plan)",
             "plan/plan.hpp:2: includes plan/deep/one.hpp: expected one of plan/ or of what it knows of (core)"])

    def test_a_folder_without_a_row_is_named(self):
        self.assertEqual(self.complaints({"new/op.hpp": []}),
                         ["new/op.hpp: expected its folder in the table of docs/ARCHITECTURE.md, got none"])

    def test_the_core_never_includes_a_companion_whatever_its_row_says(self):
        table = TABLE.replace("| core |", "| core, queue |").replace("\n## More", """
| Companion | What is in it | Knows of |
|---|---|---|
| `queue/` | a queue | core, plan |

## More""")
        self.assertEqual(
            self.complaints({"core/view.hpp": [], "queue/queue.hpp": ["core/view.hpp", "plan/plan.hpp", "queue/b.hpp"],
                             "queue/b.hpp": [], "queue.hpp": ["queue/queue.hpp"], "plan/plan.hpp": ["queue/queue.hpp"],
                             "door.hpp": ["plan/plan.hpp", "queue.hpp"]}, table),
            ["door.hpp:3: includes queue.hpp: the core never includes a companion, as queue/ is",
             "plan/plan.hpp:2: includes queue/queue.hpp: the core never includes a companion, as queue/ is",
             "a circle of includes: plan/plan.hpp -> queue/queue.hpp -> plan/plan.hpp"])

    def test_a_circle_is_named_and_definitions_are_none(self):
        self.assertEqual(
            self.complaints({"core/a.hpp": ["core/b.hpp", "core/a_some_definitions.hpp"], "core/b.hpp": ["core/c.hpp"],
                             "core/c.hpp": ["core/a.hpp"], "core/a_some_definitions.hpp": ["core/a.hpp"]}),
            ["a circle of includes: core/a.hpp -> core/b.hpp -> core/c.hpp -> core/a.hpp"])

    def test_nothing_to_check_is_a_failure(self):
        self.assertEqual(self.complaints({}), [])


if __name__ == "__main__":
    unittest.main()
