// CostModel: what messages, copies and additions cost, as measured by `dbench tune`.
//
// The file is JSON; every key may be left out and then has the value of this header, which suits a
// host of two cores:
//
//   {"shared_memory":  {"sync_us": 0.2, "turn_us": 0.65},
//    "memory":         {"copy_gb_per_s": 12, "reduce_gb_per_s": 12},
//    "shared_messages": {"latency_us": 0.4, "overhead_us": 0.2, "gb_per_s": 6},
//    "tcp_in_host":     {"latency_us": 11, "overhead_us": 9, "gb_per_s": 2},
//    "tcp":             {"latency_us": 30, "overhead_us": 5, "gb_per_s": 1.2}}
//
// All ranks of a world must use the same model, or they would choose different algorithms.
#pragma once

#include <string>
#include <string_view>

namespace dlaunch {

/// One kind of message. Seconds.
struct MessageCost {
  double latency;   // of a message: from the sender's call to the receiver's return, beside bytes
  double overhead;  // of each further message that a rank sends or receives at the same time
  double per_byte;
};

/// Seconds, of a rank that has a core of its own.
struct CostModel {
  /// A synchronisation of all members through shared memory: `sync` per doubling of their number
  /// while each has a core, else `turn` per member, because they take turns.
  double sync = 0.2e-6;
  double turn = 0.65e-6;
  double copy_per_byte = 1 / 12e9;                      // read and written once
  double reduce_per_byte = 1 / 12e9;                    // of an operand that is added
  MessageCost shared_message{0.4e-6, 0.2e-6, 1 / 6e9};  // between ranks that share memory
  MessageCost host_message{11e-6, 9e-6, 1 / 2e9};       // TCP inside a host
  MessageCost network_message{30e-6, 5e-6, 1 / 1.2e9};  // TCP between hosts
};

/// Throws ConfigError: "source: tcp.latency_us: ...".
CostModel parse_cost_model(std::string_view json, const std::string& source);
CostModel read_cost_model(const std::string& path);

/// The JSON that parse_cost_model() reads, numbers to six digits.
std::string to_json(const CostModel& model);

}  // namespace dlaunch
