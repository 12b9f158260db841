// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Counters and histograms in the text format of Prometheus.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace kserve {

/// How many values are at most each bound. Its bounds are `bounds` of its user, ascending.
template <size_t Size>
class Histogram {
 public:
  explicit Histogram(const std::array<double, Size>& bounds) : bounds_(bounds) {}

  void add(double value) {
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    ++counts_[static_cast<size_t>(bucket)];
    ++count_;
    sum_ += value;
  }
  const std::array<double, Size>& bounds() const { return bounds_; }
  /// Values above the bound before and at most the b-th; the last: above all bounds.
  int64_t count(size_t b) const { return counts_[b]; }
  int64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  std::array<double, Size> bounds_;
  std::array<int64_t, Size + 1> counts_ = {};
  int64_t count_ = 0;
  double sum_ = 0;
};

/// Writes metrics one after the other.
class MetricsText {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  /// What the next values are: `type` is counter, gauge or histogram.
  void begin(const std::string& name, const char* type, const char* help) {
    name_ = name;
    text_ += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void add(double value, const Labels& labels = {}) { line("", labels, value); }
  template <size_t Size>
  void add(const Histogram<Size>& histogram, const Labels& labels = {}) {
    Labels bucket = labels;
    bucket.emplace_back("le", "");
    int64_t below = 0;
    for (size_t b = 0; b < Size; ++b) {
      below += histogram.count(b);
      bucket.back().second = number(histogram.bounds()[b]);
      line("_bucket", bucket, static_cast<double>(below));
    }
    bucket.back().second = "+Inf";
    line("_bucket", bucket, static_cast<double>(histogram.count()));
    line("_sum", labels, histogram.sum());
    line("_count", labels, static_cast<double>(histogram.count()));
  }
  const std::string& text() const { return text_; }

 private:
  static std::string number(double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.15g", value);
    return digits;
  }
  static std::string escaped(const std::string& text) {
    std::string result;
    for (const char c : text) {
      if (c == '\n') {
        result += "\\n";
        continue;
      }
      if (c == '"' || c == '\\') result += '\\';
      result += c;
    }
    return result;
  }
  void line(const char* suffix, const Labels& labels, double value) {
    text_ += name_ + suffix;
    for (size_t l = 0; l < labels.size(); ++l)
      text_ += (l == 0 ? "{" : ",") + labels[l].first + "=\"" + escaped(labels[l].second) + "\"";
    text_ += (labels.empty() ? " " : "} ") + number(value) + "\n";
  }

  std::string name_, text_;
};

}  // namespace kserve
