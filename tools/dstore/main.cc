// dstore: looks into the rendezvous store of a running job. docs/rendezvous.md shows how.
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "runtime/base/exit_codes.h"
#include "runtime/base/option_errors.h"
#include "runtime/base/option_help.h"
#include "runtime/base/run_program.h"
#include "runtime/base/standard_descriptors.h"
#include "runtime/rendezvous/tcp_store.h"
#include "tools/dstore/store_location.h"

namespace dlaunch {
namespace {

constexpr std::size_t kShownBytes = 64;  // of a value, in a list

struct Request {
  StoreLocationOptions location;
  double timeout = 5;
  std::vector<std::string> keys;
  std::string key;
  std::string value;
  std::string prefix;
};

std::chrono::nanoseconds timeout_of(const Request& request) {
  return std::chrono::nanoseconds(static_cast<long long>(request.timeout * 1e9));
}

// For a line of a terminal: what is not printable as \xNN.
std::string escaped(std::string_view bytes) {
  std::string text;
  for (const char each : bytes) {
    const auto byte = static_cast<unsigned char>(each);
    char code[5];
    if (byte >= 0x20 && byte < 0x7f && byte != '\\') {
      text += each;
    } else {
      std::snprintf(code, sizeof(code), "\\x%02x", byte);
      text += code;
    }
  }
  return text;
}

// A value, cut short.
std::string shown(const std::string& value) {
  std::string text = escaped(std::string_view(value).substr(0, kShownBytes));
  if (value.size() > kShownBytes) text += "... (" + std::to_string(value.size()) + " bytes)";
  return text;
}

Status get(TcpStore& store, const Request& request) {
  const auto values = store.get_all(request.keys, Deadline::after(timeout_of(request)));
  if (!values.ok()) return values.status();
  for (const std::string& value : *values) {
    std::fwrite(value.data(), 1, value.size(), stdout);
    std::fputc('\n', stdout);
  }
  return {};
}

Status list(TcpStore& store, const Request& request) {
  const auto entries = store.list(request.prefix);
  if (!entries.ok()) return entries.status();
  for (const StoreEntry& entry : *entries) {
    const auto value = store.try_get({entry.key});
    if (!value.ok()) return value.status();
    if (value->front()) {
      std::printf("%s = %s\n", shown(entry.key).c_str(), shown(*value->front()).c_str());
    }
  }
  return {};
}

// Until the job ends, or the user has seen enough.
Status watch(TcpStore& store, const Request& request) {
  for (std::uint64_t revision = 0;;) {
    const auto seen = store.watch(request.prefix, revision, Deadline::after(std::chrono::hours(1)));
    if (seen.status().code() == StatusCode::kTimeout) continue;
    if (seen.status().code() == StatusCode::kPeerLost) return {};
    if (!seen.ok()) return seen.status();
    revision = seen->revision;
    for (const auto& change : seen->changes) {
      if (change.value) {
        std::printf("%s = %s\n", shown(change.key).c_str(), shown(*change.value).c_str());
      } else {
        std::printf("%s removed\n", shown(change.key).c_str());
      }
    }
    flush_output();
  }
}

Status stat(TcpStore& store, const Request&) {
  const auto counts = store.stat();
  if (!counts.ok()) return counts.status();
  for (const auto& [name, value] : *counts) std::printf("%s: %s\n", name.c_str(), value.c_str());
  return {};
}

Status set(TcpStore& store, const Request& request) {
  return store.set(request.key, request.value);
}

Status remove(TcpStore& store, const Request& request) {
  const auto removed = store.remove(request.key);
  if (!removed.ok()) return removed.status();
  if (*removed) return {};
  return Status(StatusCode::kNotFound, "there is no key '" + request.key + "'");
}

using Action = Status (*)(TcpStore&, const Request&);

Status carry_out(Action action, const Request& request) {
  const auto location = locate_store(request.location);
  if (!location.ok()) return location.status();
  const auto store = TcpStore::connect(location->address, location->token,
                                       Deadline::after(timeout_of(request)), location->prefix);
  if (!store.ok()) return store.status();
  (*store)->limit_answers(timeout_of(request));
  return action(**store, request);
}

constexpr const char* kPrefixHelp = "Of keys, like world/ (default: all)";

// The options and subcommands; `action` is set by the subcommand that is given.
void describe(CLI::App& app, Request& request, Action& action) {
  app.require_subcommand(1);
  app.fallthrough();  // options may also stand behind the subcommand
  app.add_option("--endpoint", request.location.endpoint, "The store (default: DLAUNCH_STORE)")
      ->type_name("HOST:PORT");
  app.add_option("--token-file", request.location.token_file, "The job's secret")
      ->type_name("FILE");
  app.add_option("--prefix", request.location.prefix,
                 "Begins all keys, and is not shown (default: DLAUNCH_STORE_PREFIX); '' shows all")
      ->type_name("TEXT");
  app.add_option("--pid", request.location.pid, "Take these from the environment of this rank");
  app.add_option("--timeout", request.timeout, "For connecting and for answers (default 5)")
      ->type_name("SECONDS")
      ->check(number_range(0.0, 1e6));
  const auto command = [&](const char* name, const char* help, Action does) {
    return app.add_subcommand(name, help)->callback([&action, does] { action = does; });
  };
  command("get", "Print values, waiting for keys that are not there yet", get)
      ->add_option("KEY", request.keys, "As list prints it")
      ->required();
  command("list", "Print all keys that begin with PREFIX, and their values", list)
      ->add_option("PREFIX", request.prefix, kPrefixHelp);
  command("watch", "The same, and then every change, until the job ends", watch)
      ->add_option("PREFIX", request.prefix, kPrefixHelp);
  command("stat", "Print what the store holds, and for how many clients", stat);
  auto* const setter = command("set", "Set a key", set);
  setter->add_option("KEY", request.key, "New, or one whose value is replaced")->required();
  setter->add_option("VALUE", request.value, "Text")->required();
  command("remove", "Remove a key", remove)
      ->add_option("KEY", request.key, "As list prints it")
      ->required();
}

int exit_code_of(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return kExitOk;
    case StatusCode::kInvalidArgument:
      return kExitUsage;
    case StatusCode::kNotFound:  // the store has answered: there is no such key
      return kExitFailure;
    default:
      return kExitCommunication;
  }
}

int run(int argc, char** argv) {
  CLI::App app("Looks into the rendezvous store of a running job.", "dstore");
  app.formatter(std::make_shared<OptionHelp>());
  app.set_version_flag("--version", "dstore " DLAUNCH_VERSION, "Show the version and exit");
  Request request;
  Action action = nullptr;
  describe(app, request, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "dstore: %s\n", refusal(app, error).c_str());
    return kExitUsage;
  }
  const Status status = carry_out(action, request);
  if (!status.ok()) std::fprintf(stderr, "dstore: %s\n", escaped(status.to_string()).c_str());
  return exit_code_of(status.code());
}

}  // namespace
}  // namespace dlaunch

int main(int argc, char** argv) {
  dlaunch::open_standard_descriptors();
  return dlaunch::run_program("dstore", dlaunch::kExitFailure,
                              [&] { return dlaunch::run(argc, argv); });
}
