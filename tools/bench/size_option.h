// A command-line option whose value is a number of bytes.
#pragma once

#include <cstddef>
#include <string>

#include <CLI/CLI.hpp>

namespace dlaunch::bench {

/// "65536" or "64K"; K, M, G and T stand for powers of 1024. The value is at least 1 and at most
/// 1T.
CLI::Option* add_size_option(CLI::App& app, const std::string& name, std::size_t& bytes,
                             const std::string& help);

}  // namespace dlaunch::bench
