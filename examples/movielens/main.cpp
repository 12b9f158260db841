// SPDX-License-Identifier: Apache-2.0

/// Ranks the films of MovieLens 100K for one of its users, or measures how well it ranks for all of them.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "data.hpp"
#include "evaluation.hpp"
#include "features.hpp"
#include "generated.hpp"
#include "ranker.hpp"
#if defined(WARPRANK_EXAMPLE_CUDA)
#include "warprank/cuda.hpp"
#endif

namespace movielens {

/// "host", "cuda", or for "auto" a GPU where there is one.
warprank::Device device_of(const std::string& engine) {
#if defined(WARPRANK_EXAMPLE_CUDA)
  if (engine == "cuda" || (engine == "auto" && warprank::num_cuda_devices() > 0)) return warprank::cuda();
#else
  if (engine == "cuda")
    throw warprank::invalid_argument("--engine", "host: this program was built without WARPRANK_CUDA", engine);
#endif
  return warprank::host();
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// UTF-8 text cut or filled to `width` characters.
std::string column(const std::string& text, size_t width) {
  size_t characters = 0, end = 0;
  for (; end < text.size(); ++end) {
    const bool begins_character = (static_cast<unsigned char>(text[end]) & 0xc0) != 0x80;
    if (begins_character && characters++ == width) break;
  }
  return text.substr(0, end) + std::string(end == text.size() ? width - characters : 0, ' ');
}

std::string genres_of(const Data& data, const Film& film) {
  std::string names;
  for (const int64_t genre : film.genres)
    names += (names.empty() ? "" : ", ") + data.genres[static_cast<size_t>(genre)];
  return names;
}

int64_t find_user(const Data& data, int64_t id) {
  const auto found = std::lower_bound(data.users.begin(), data.users.end(), id,
                                      [](const User& user, int64_t wanted) { return user.id < wanted; });
  if (found == data.users.end() || found->id != id)
    throw warprank::invalid_argument(
        "--user",
        "a user between " + std::to_string(data.users.front().id) + " and " + std::to_string(data.users.back().id),
        std::to_string(id));
  return found - data.users.begin();
}

void print_history(const Data& data, const Features& features, int64_t user) {
  const User& person = data.users[static_cast<size_t>(user)];
  const UserRatings& ratings = features.ratings_of(user);
  constexpr int64_t shown_films = 10;
  const int64_t known = ratings.held_out - ratings.begin, used = std::min(known, longest_history);
  std::printf("User %lld, %lld years, %c, %s: %lld ratings known, the last %lld used; the last %lld of them:\n",
              static_cast<long long>(person.id), static_cast<long long>(person.age), person.gender,
              person.occupation.c_str(), static_cast<long long>(known), static_cast<long long>(used),
              static_cast<long long>(std::min(known, shown_films)));
  for (int64_t i = ratings.held_out - 1; i >= std::max(ratings.begin, ratings.held_out - shown_films); --i) {
    const Film& film = data.films[static_cast<size_t>(features.rating(i).film)];
    std::printf("  %s  %s  %s\n", column(std::string(static_cast<size_t>(features.rating(i).stars), '*'), 5).c_str(),
                column(film.title, 44).c_str(), genres_of(data, film).c_str());
  }
}

/// The median of several runs: a single one is at the mercy of whatever else the machine does.
double median_milliseconds(Ranker& ranker, const std::vector<RequestFeatures>& requests) {
  std::vector<double> times;
  for (int run = 0; run < 21; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    ranker.score(requests);
    times.push_back(1e3 * seconds_since(begin));
  }
  std::nth_element(times.begin(), times.begin() + 10, times.end());
  return times[10];
}

void print_top(const Data& data, const Features& features, Ranker& ranker, int64_t user, size_t top) {
  const std::vector<int64_t> films = features.unseen_films(user);
  const std::vector<RequestFeatures> request = {features.request(user, films)};
  const Probabilities probabilities = ranker.score(request)[0];

  std::vector<size_t> order(films.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  top = std::min(top, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top), order.end(),
                    [&](size_t a, size_t b) { return probabilities.loved[a] > probabilities.loved[b]; });
  std::map<int64_t, int64_t> rated_later;
  for (int64_t i = features.ratings_of(user).held_out; i < features.ratings_of(user).end; ++i)
    rated_later[features.rating(i).film] = features.rating(i).stars;

  std::printf("\nThe best %zu of the %zu other films:\n", top, films.size());
  std::printf("   #  P(>=4)  P(5)   rated later  film\n");
  for (size_t rank = 0; rank < top; ++rank) {
    const size_t i = order[rank];
    const Film& film = data.films[static_cast<size_t>(films[i])];
    const auto later = rated_later.find(films[i]);
    const std::string stars = later == rated_later.end() ? "" : std::string(static_cast<size_t>(later->second), '*');
    std::printf("%4zu   %.3f  %.3f  %s  %s  %s\n", rank + 1, static_cast<double>(probabilities.liked[i]),
                static_cast<double>(probabilities.loved[i]), column(stars, 11).c_str(), column(film.title, 44).c_str(),
                genres_of(data, film).c_str());
  }
  std::printf("\n%.2f ms per request of %zu films (median; %s engine, one thread)\n",
              median_milliseconds(ranker, request), films.size(), ranker.engine());
}

void print_evaluation(const Data& data, const Features& features, Ranker& ranker) {
  const int64_t total = features.num_held_out();
  const bool show_progress = isatty(STDERR_FILENO) == 1;
  const auto begin = std::chrono::steady_clock::now();
  const Evaluation evaluation = evaluate(data, features, ranker, [&](int64_t done) {
    if (!show_progress) return;
    constexpr int64_t width = 40;
    const int64_t filled = total == 0 ? width : width * done / total;
    std::fprintf(stderr, "\r[%s%s] %lld of %lld ratings", std::string(static_cast<size_t>(filled), '#').c_str(),
                 std::string(static_cast<size_t>(width - filled), ' ').c_str(), static_cast<long long>(done),
                 static_cast<long long>(total));
  });
  const double seconds = seconds_since(begin);
  if (show_progress) std::fprintf(stderr, "\r\033[K");
  std::printf("%lld held-out ratings of %zu users: AUC of rating >= 4 %.5f, of rating = 5 %.5f\n",
              static_cast<long long>(total), data.users.size(), evaluation.auc_liked(), evaluation.auc_loved());
  std::printf("%.2f s, %.2f ms per user (%s engine, one thread)\n", seconds,
              1e3 * seconds / static_cast<double>(data.users.size()), ranker.engine());
}

int run(int argc, char** argv) {
  CLI::App app("Ranks the films of MovieLens 100K for one of its users.");
  int64_t user = 1;
  size_t top = 10;
  std::string folder, weights = WARPRANK_EXAMPLE_FOLDER "/weights", engine = "auto";
  bool measure = false, plan = false;
  app.add_option("--user", user, "Whose films to rank")->capture_default_str();
  app.add_option("--data", folder, "Folder with u.data, u.user, u.item and u.genre; without it a generated catalogue")
      ->envname("WARPRANK_DATA");
  app.add_option("--weights", weights, "Folder with dense.safetensors and tables.safetensors")->capture_default_str();
  app.add_option("--engine", engine, "auto: a GPU where there is one and the program was built for it")
      ->check(CLI::IsMember({"auto", "host", "cuda"}))
      ->capture_default_str();
  app.add_option("--top", top, "How many films to show")->check(CLI::Range(1, 1000000))->capture_default_str();
  app.add_flag("--evaluate", measure, "Measure the AUC on the held-out ratings of all users instead");
  app.add_flag("--plan", plan, "Show first what the planner made of the model");
  CLI11_PARSE(app, argc, argv);

  if (folder.empty())
    std::printf(
        "NOTE: no data was given, so users, films and ratings are GENERATED. The weights were trained on the real\n"
        "MovieLens films: everything below runs as it does on them, but its scores and its AUC mean nothing.\n\n");
  const Data data = folder.empty() ? generate() : load(folder);
  const Features features(data);
  Ranker ranker(weights, device_of(engine));
  if (plan) std::printf("%s\n", ranker.plan().describe().c_str());
  if (measure) {
    print_evaluation(data, features, ranker);
  } else {
    const int64_t position = find_user(data, user);
    print_history(data, features, position);
    print_top(data, features, ranker, position, top);
  }
  return 0;
}

}  // namespace movielens

int main(int argc, char** argv) {
  try {
    return movielens::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
