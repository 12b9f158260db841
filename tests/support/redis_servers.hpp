// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Processes of redis-server on free ports of the loopback, gone with their object or with the test that has it.

#include <arpa/inet.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "folder.hpp"
#include "wait_until.hpp"
#include "warprank/store/redis/connection.hpp"
#include "warprank/store/redis/slots.hpp"

namespace warprank::test_support {

inline bool has_redis_server() { return std::system("command -v redis-server >/dev/null 2>&1") == 0; }

/// Each is a master for itself, until they are made a cluster.
class RedisServers {
 public:
  RedisServers(const std::string& name, int count, std::vector<std::string> more_options = {})
      : folder_(name), more_options_(std::move(more_options)), processes_(static_cast<size_t>(count), -1) {
    for (int i = 0; i < count; ++i) ports_.push_back(free_port());
    for (int i = 0; i < count; ++i) start(i);
  }
  ~RedisServers() {
    for (size_t i = 0; i < processes_.size(); ++i) kill(static_cast<int>(i));
  }

  int count() const { return static_cast<int>(ports_.size()); }
  int port(int i) const { return ports_[static_cast<size_t>(i)]; }
  std::vector<redis::Address> addresses() const {
    std::vector<redis::Address> list;
    for (const int port : ports_) list.push_back({"127.0.0.1", port});
    return list;
  }

  void start(int i) {
    const std::string folder = folder_.path() + std::to_string(i), port = std::to_string(this->port(i));
    std::filesystem::create_directory(folder);
    std::vector<std::string> words = {"redis-server", "--port",      port, "--bind",       "127.0.0.1", "--dir",
                                      folder,         "--save",      "",   "--appendonly", "no",        "--logfile",
                                      "log",          "--daemonize", "no"};
    words.insert(words.end(), more_options_.begin(), more_options_.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t parent = getpid(), child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      execvp(arguments[0], arguments.data());
      _exit(1);
    }
    processes_[static_cast<size_t>(i)] = child;
    if (!wait_until([&] { return is_up(i); })) throw std::runtime_error("redis-server does not start, see " + folder);
  }
  void kill(int i) {
    pid_t& process = processes_[static_cast<size_t>(i)];
    if (process < 0) return;
    ::kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
    process = -1;
  }
  void pause(int i) { ::kill(processes_[static_cast<size_t>(i)], SIGSTOP); }
  void go_on(int i) { ::kill(processes_[static_cast<size_t>(i)], SIGCONT); }

  /// The reply as text; of a list its elements' texts, a line each.
  std::string ask(int i, const std::vector<std::string>& words) const {
    const timeval timeout{60, 0};
    const std::unique_ptr<redisContext, void (*)(redisContext*)> context(
        redisConnectWithTimeout("127.0.0.1", port(i), timeout), redisFree);
    if (context == nullptr || context->err != 0) return "no connection";
    redisSetTimeout(context.get(), timeout);
    std::vector<const char*> parts;
    std::vector<size_t> sizes;
    for (const std::string& word : words) {
      parts.push_back(word.data());
      sizes.push_back(word.size());
    }
    const redis::ReplyPointer reply(static_cast<redisReply*>(
        redisCommandArgv(context.get(), static_cast<int>(parts.size()), parts.data(), sizes.data())));
    return reply == nullptr ? "no reply" : text_of(*reply);
  }

 private:
  static std::string text_of(const redisReply& reply) {
    if (reply.type == REDIS_REPLY_INTEGER) return std::to_string(reply.integer);
    if (reply.type == REDIS_REPLY_NIL) return "nil";
    if (reply.type != REDIS_REPLY_ARRAY) return std::string(redis::text_of(reply));
    std::string text;
    for (size_t e = 0; e < reply.elements; ++e) text += text_of(*reply.element[e]) + "\n";
    return text;
  }
  bool is_up(int i) const { return ask(i, {"PING"}) != "no connection"; }

  static bool is_free(int port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool is_free = bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(socket);
    return is_free;
  }
  /// The port 10000 above is the cluster's own. Processes that begin together begin 20 ports apart, or one would take
  /// what the other has found free.
  static int free_port() {
    static int next = 15000 + getpid() % 350 * 20;
    while (next = next < 22000 ? next + 1 : 15000, !is_free(next) || !is_free(next + 10000)) continue;
    return next;
  }

  Folder folder_;
  const std::vector<std::string> more_options_;
  std::vector<int> ports_;
  std::vector<pid_t> processes_;
};

/// Three masters, 0 to 2, each of a third of the slots, and their replicas, 3 to 5.
class RedisClusterServers : public RedisServers {
 public:
  static constexpr int masters = 3;

  explicit RedisClusterServers(const std::string& name)
      : RedisServers(name, 2 * masters,
                     {"--cluster-enabled", "yes", "--cluster-node-timeout", patient, "--cluster-require-full-coverage",
                      "no", "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0",
                      "--cluster-replica-validity-factor", "0"}) {
    set_node_timeout(hasty);  // so they soon know of one another
    for (int i = 0; i < count(); ++i) ask(i, {"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
    for (int i = 1; i < count(); ++i) ask(0, {"CLUSTER", "MEET", "127.0.0.1", std::to_string(port(i))});
    for (int m = 0; m < masters; ++m)
      ask(m, {"CLUSTER", "ADDSLOTSRANGE", std::to_string(first_slot(m)), std::to_string(first_slot(m + 1) - 1)});
    expect(all_of([&](int i) { return info(i, "CLUSTER", "cluster_known_nodes") == std::to_string(count()); }), "meet");
    for (int m = 0; m < masters; ++m)
      expect([&] { return ask(masters + m, {"CLUSTER", "REPLICATE", id(m)}) == "OK"; }, "have replicas");
    expect_whole();
    set_node_timeout(patient);
  }

  /// Waits until every slot is served, and every other node a replica at work.
  void expect_whole() {
    expect(all_of([&](int i) {
             return info(i, "CLUSTER", "cluster_state") == "ok" && info(i, "CLUSTER", "cluster_slots_ok") == "16384" &&
                    info(i, "CLUSTER", "cluster_size") == "3" &&
                    (info(i, "INFO", "role") == "master" || info(i, "INFO", "master_link_status") == "up");
           }),
           "be whole");
    expect(
        [&] {
          int connected = 0;
          for (int i = 0; i < count(); ++i)
            if (info(i, "INFO", "role") == "master")
              connected += std::atoi(info(i, "INFO", "connected_slaves").c_str());
          return connected == masters;
        },
        "have all replicas");
  }

  /// Makes another node the master of what this one, which does not answer, was master of. Until then none is replaced,
  /// however long it does not get to run.
  void expect_replaced(int master) {
    set_node_timeout(hasty, master);
    expect(
        [&] {
          int others = 0;
          for (int i = 0; i < count(); ++i) others += i != master && info(i, "INFO", "role") == "master";
          return others == masters;
        },
        "replace a master");
    set_node_timeout(patient, master);
  }

  /// Waits until replicas have all that their masters have; nobody may write meanwhile.
  void expect_replicated() {
    expect(all_of([&](int i) {
             if (info(i, "INFO", "role") == "master") return true;
             int master = 0;
             while (std::to_string(port(master)) != info(i, "INFO", "master_port")) ++master;
             return info(i, "INFO", "slave_repl_offset") == info(master, "INFO", "master_repl_offset");
           }),
           "replicate");
  }

  static int first_slot(int master) { return master * redis::num_slots / masters; }
  static int master_of(int slot) {
    int master = 0;
    while (first_slot(master + 1) <= slot) ++master;
    return master;
  }
  std::string id(int i) const { return ask(i, {"CLUSTER", "MYID"}); }
  /// A line of CLUSTER INFO or INFO.
  std::string info(int i, const std::string& command, const std::string& name) const {
    const std::string text =
        "\n" + (command == "CLUSTER" ? ask(i, {"CLUSTER", "INFO"}) : ask(i, {"INFO", "replication"}));
    const size_t at = text.find("\n" + name + ":");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 2;
    return text.substr(begin, text.find('\r', begin) - begin);
  }

 private:
  std::function<bool()> all_of(const std::function<bool(int)>& holds) const {
    return [this, holds] {
      for (int i = 0; i < count(); ++i)
        if (!holds(i)) return false;
      return true;
    };
  }
  /// After so many milliseconds without an answer a node is replaced.
  static constexpr const char *patient = "600000", *hasty = "1000";
  void set_node_timeout(const char* ms, int silent = -1) const {
    for (int i = 0; i < count(); ++i)
      if (i != silent) ask(i, {"CONFIG", "SET", "cluster-node-timeout", ms});
  }
  static void expect(const std::function<bool()>& holds, const std::string& what) {
    if (!wait_until(holds)) throw std::runtime_error("the servers of Redis do not " + what);
  }
};

}  // namespace warprank::test_support
