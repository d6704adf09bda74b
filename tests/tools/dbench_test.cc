// dbench and compare_collectives as their users run them.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/base/exit_codes.h"
#include "runtime/collective/cost_model.h"
#include "tests/support/subprocess.h"

namespace dlaunch::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr auto kLimit = std::chrono::seconds(60);

class Dbench : public ::testing::Test {
 protected:
  Dbench() : folder_(fs::temp_directory_path() / ("dbench_test_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~Dbench() override { fs::remove_all(folder_); }

  CompletedProcess run(std::vector<std::string> words) const {
    words.insert(words.begin(), built_program("dbench"));
    return run_command({.arguments = words}, Deadline::after(kLimit));
  }

  // The document of a short run with --json.
  json results(std::vector<std::string> words) const {
    const std::string path = (folder_ / "results.json").string();
    words.insert(words.end(), {"--json", path, "--iterations", "4", "--warmup", "1"});
    const auto done = run(words);
    EXPECT_EQ(done.exit_code, 0) << done.error;
    std::ifstream file(path);
    return json::parse(file);
  }

  fs::path folder_;
};

TEST(Help, OfEveryToolFitsAScreensWidthAndSaysNothingOfTheParser) {
  const std::vector<std::vector<std::string>> commands{
#ifdef WITH_NN
      {"dtrain"},        {"dbench", "train"},  {"dbench", "syncbn"}, {"dbench", "device"},
#endif
      {"dstore"},        {"sequential_print"}, {"dbench"},           {"dbench", "allreduce"},
      {"dbench", "p2p"}, {"dbench", "tune"},   {"dbench", "explain"}};
  for (std::vector<std::string> command : commands) {
    const std::string name = command.front() + (command.size() > 1 ? " " + command.back() : "");
    command.front() = built_program(command.front());
    command.emplace_back("--help");
    const auto help = run_command({.arguments = command});
    EXPECT_EQ(help.exit_code, 0) << name;
    std::istringstream lines(help.out);
    bool in_list = false;  // what is before it, the terminal wraps
    for (std::string line; std::getline(lines, line);) {
      in_list = in_list || line.ends_with(':');
      if (in_list) {
        EXPECT_LE(line.size(), 80U) << name << ": " << line;
      }
      for (const char* word : {"INT", "FLOAT", " in [", "POSITIVE", "Excludes"}) {
        EXPECT_THAT(line, ::testing::Not(HasSubstr(word))) << name;
      }
    }
    EXPECT_TRUE(in_list) << name << ": " << help.out;
  }
}

TEST(FirstBarrier, SaysHowItIsUsed) {
  const std::string program = built_program("first_barrier");
  const auto help = run_command({.arguments = {program, "--help"}});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(help.out, "usage: dlaunch --nproc N first_barrier\n");
  EXPECT_EQ(run_command({.arguments = {program, "more"}}).exit_code, kExitUsage);
}

TEST(StoreBench, RefusesItsCommandLineAsOthersDo) {
  const auto done = run_command({.arguments = {built_program("store_bench"), "--operations", "0"}});
  EXPECT_EQ(done.exit_code, kExitUsage);
  EXPECT_THAT(done.error, ::testing::MatchesRegex("store_bench: --operations: .*try store_bench "
                                                  "--help\n"));
}

TEST(Version, OfEveryToolIsTheProjects) {
  for (const std::string program : {
#ifdef WITH_NN
           "dtrain",
#endif
           "dbench", "dstore", "dlaunch"}) {
    const auto said = run_command({.arguments = {built_program(program), "--version"}});
    EXPECT_EQ(said.exit_code, kExitOk) << program;
    EXPECT_THAT(said.out, ::testing::MatchesRegex(program + " [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  }
}

TEST_F(Dbench, TimesAndVerifiesEveryCollectiveOnEveryType) {
  int ranks = 1;
  for (const std::string operation : {"allreduce", "broadcast", "reduce", "all_gather",
                                      "reduce_scatter", "alltoall", "gather", "scatter"}) {
    const std::string dtype = ranks % 2 == 0 ? "bf16" : "f32";
    const std::size_t size = ranks % 2 == 0 ? 2 : 4;
    ranks = ranks % 5 + 1;
    const json document =
        results({operation, "--nproc", std::to_string(ranks), "--counts", "1,37,4099", "--dtype",
                 dtype, "--verify", "--transport", "tcp"});
    EXPECT_EQ(document["ranks"], ranks);
    EXPECT_EQ(document["transport"], "tcp");
    ASSERT_EQ(document["cells"].size(), 3U) << operation;
    for (const json& cell : document["cells"]) {
      EXPECT_GT(cell["us"], 0);
      EXPECT_GE(cell["us_p90"], cell["us_p10"]);
      EXPECT_EQ(cell["repetitions"], 4);
      EXPECT_EQ(cell["bytes"], cell["count"].get<std::size_t>() * size);
      EXPECT_LT(cell["error"], 0.05);
      EXPECT_GT(cell["peak_mib"], 1);
      EXPECT_LT(cell["peak_mib"], 1000);
    }
  }
}

TEST_F(Dbench, MeasuresWhatTheMachineDoesAtBest) {
  const json document = results({"machine", "--nproc", "2", "--bytes", "1M"});
  EXPECT_EQ(document["ranks"], 2);
  std::vector<std::string> measured;
  for (const json& cell : document["cells"]) {
    measured.push_back(cell["what"]);
    EXPECT_GT(cell["rate"], 0);
    EXPECT_LE(cell["rate_p10"], cell["rate_p90"]);
  }
  EXPECT_THAT(measured, ::testing::IsSupersetOf({"read", "copy"}));
}

TEST_F(Dbench, ComparesAlgorithms) {
  const json document = results({"allreduce", "--nproc", "3", "--counts", "1000", "--algorithm",
                                 "ring,butterfly", "--op", "avg", "--rank-order"});
  ASSERT_EQ(document["cells"].size(), 2U);
  EXPECT_EQ(document["cells"][0]["algorithm"], "ring");
  EXPECT_EQ(document["cells"][1]["algorithm"], "butterfly");
  for (const json& cell : document["cells"]) EXPECT_LT(cell["error"], 3 * 0x1p-24);
}

TEST_F(Dbench, SweepsSizesByAFactor) {
  const json document = results(
      {"broadcast", "--min-bytes", "1K", "--max-bytes", "64K", "--factor", "8", "--dtype", "f64"});
  std::vector<std::size_t> bytes;
  for (const json& cell : document["cells"]) bytes.push_back(cell["bytes"]);
  EXPECT_THAT(bytes, ::testing::ElementsAre(1024, 8192, 65536));
}

TEST_F(Dbench, TimesTheBarrier) {
  const json document = results({"barrier", "--nproc", "3"});
  ASSERT_EQ(document["cells"].size(), 1U);
  EXPECT_GT(document["cells"][0]["batch_us"], 0);
}

TEST_F(Dbench, SetsPointToPointBesideSocketsAndMemory) {
  const json document = results(
      {"p2p", "--min-bytes", "8", "--max-bytes", "100K", "--factor", "1024", "--seconds", "0.01"});
  std::vector<std::string> ways;
  for (const json& cell : document["cells"]) ways.push_back(cell["way"]);
  EXPECT_THAT(ways,
              ::testing::ElementsAre("dlaunch", "socket_spinning", "socket_blocking", "shared_flag",
                                     "memcpy", "memcpy_both", "dlaunch", "socket_spinning",
                                     "socket_blocking", "memcpy", "memcpy_both"));
  EXPECT_EQ(document["cells"].front()["bytes"], 8);
  EXPECT_EQ(document["cells"].back()["bytes"], 8192);
}

TEST_F(Dbench, ExplainsAChoiceWithoutRanks) {
  const auto done = run({"explain", "all_reduce", "--bytes", "4K", "--hosts", "1024",
                         "--ranks-per-host", "8", "--cores", "8"});
  EXPECT_EQ(done.exit_code, 0) << done.error;
  EXPECT_THAT(done.out, HasSubstr("chosen: "));
  for (const char* algorithm : {"\nring ", "\nbutterfly ", "\nhierarchical "}) {
    EXPECT_THAT(done.out, HasSubstr(algorithm));
  }
}

TEST_F(Dbench, ExplainsUpToFourMillionRanks) {
  const auto most = run({"explain", "all_reduce", "--bytes", "4K", "--hosts", "1024",
                         "--ranks-per-host", "4096", "--cores", "8"});
  EXPECT_EQ(most.exit_code, 0) << most.error;
  EXPECT_THAT(most.out, HasSubstr("1024 hosts x 4096 ranks, 8 cores per host"));
  EXPECT_THAT(most.out, ::testing::Not(HasSubstr("-")));  // no time is below 0
}

TEST_F(Dbench, ExplainsInTheSingularWhatIsOne) {
  const auto least = run({"explain", "all_reduce", "--bytes", "1", "--hosts", "1",
                          "--ranks-per-host", "1", "--cores", "1", "--transport", "tcp"});
  EXPECT_THAT(least.out, ::testing::StartsWith("all_reduce of 1 byte of f32: 1 host x 1 rank, "
                                               "1 core per host, TCP only\n"));
  const auto most = run({"explain", "broadcast", "--bytes", "1T", "--ranks", "2"});
  EXPECT_THAT(most.out, HasSubstr(" ns (synchronisations)"));
  EXPECT_THAT(most.out, ::testing::Not(HasSubstr("e+")));
}

TEST_F(Dbench, TunesAModelThatWorldsRead) {
  const std::string path = (folder_ / "model.json").string();
  const auto tune = [&](const std::string& transport) {
    const auto done = run(
        {"tune", "--nproc", "2", "--seconds", "0.01", "--model", path, "--transport", transport});
    EXPECT_EQ(done.exit_code, 0) << done.error;
    EXPECT_EQ(done.out, to_json(read_cost_model(path)));
    return read_cost_model(path);
  };
  const CostModel built_in;
  const CostModel shared = tune("shm");
  EXPECT_NE(shared.sync, built_in.sync);
  EXPECT_NE(shared.copy_per_byte, built_in.copy_per_byte);
  EXPECT_NE(shared.shared_message.latency, built_in.shared_message.latency);
  EXPECT_EQ(to_json({.host_message = shared.host_message}), to_json(built_in));
  const CostModel both = tune("tcp");
  EXPECT_NE(both.host_message.latency, built_in.host_message.latency);
  CostModel other_terms = both;  // than TCP's are as they were
  other_terms.host_message = shared.host_message;
  EXPECT_EQ(to_json(other_terms), to_json(shared));
  const auto done = run({"explain", "broadcast", "--bytes", "1M", "--model", path});
  EXPECT_THAT(done.out, HasSubstr("cost model: " + path));
}

using Refusals = std::vector<std::pair<std::vector<std::string>, std::string>>;

TEST_F(Dbench, RefusesWhatNoOptionTakesInOneLineThatNamesItsHelp) {
  const Refusals wrong = {
      {{"allreduce", "--dtype", "f33"}, "--dtype: 'f33' is none of .*did you mean f32.*"},
      {{"allreduce", "--algorithm", "rong"}, "--algorithm: 'rong' .*did you mean ring.*"},
      {{"allreduce", "--op", "plus"}, "--op: 'plus' is none of sum, avg, min, max, prod.*"},
      {{"allreduce", "--counts", "many"}, ".*--counts.*"},
      {{"allreduce", "--counts", "8,-5"}, "--counts: '-5' is less than 0"},
      {{"allreduce", "--nproc", "0"}, ".*--nproc.*"},
      {{"allreduce", "--transport", "pigeon"}, "--transport: 'pigeon' is none of auto, shm, tcp"},
      {{}, "a command is missing: one of allreduce, .*"},
      {{"allreduce", "--count", "8"}, "unknown option --count; did you mean --counts\\?"},
      {{"allreduce", "8"}, "unexpected argument '8'"},
      {{"train", "--stps", "8", "x.json"}, "unknown option --stps; did you mean --steps\\?"},
      {{"allreduce", "--max-bytes", "999999999999999999999"},
       "--max-bytes: '999999999999999999999'; allowed: bytes from 1 to 1T, .*"},
      {{"allreduce", "--min-bytes", "-1"}, "--min-bytes: '-1'; allowed: .*"},
      {{"allreduce", "--min-bytes", "1X"}, "--min-bytes: '1X'; allowed: .*"},
      {{"machine", "--bytes", "1.5M"}, "--bytes: '1.5M'; allowed: .*"},
      {{"explain", "all_reduce", "--bytes", "-1"}, "--bytes: '-1'; allowed: .*"},
      {{"explain", "all_reduce", "--bytes", "2T"}, "--bytes: '2T'; allowed: .*"},
      {{"explain", "all_reduce", "--bytes", "16777216T"}, "--bytes: '16777216T'; allowed: .*"},
      {{"allreduce", "--seconds", "-1"}, "--seconds: Value -1 not in range 0.001.* to 1000000.*"},
      {{"all_redcue"}, "'all_redcue' is none of allreduce, .*"},
  };
  const std::string help = "(; try dbench.* --help| \\(try dbench.* --help\\))";
  for (const auto& [words, message] : wrong) {
    const auto done = run(words);
    EXPECT_EQ(done.exit_code, kExitUsage) << message;
    EXPECT_THAT(done.error, ::testing::MatchesRegex("dbench: " + message + help + "\n"));
    EXPECT_EQ(done.out, "");
  }
}

TEST_F(Dbench, RefusesWhatMakesNoSenseTogetherOrOnThisMachineInOneLine) {
  const Refusals wrong = {
      {{"allreduce", "--op", "band"}, "--op: band is of integers, and --dtype is f32"},
      {{"allreduce", "--min-bytes", "8K", "--max-bytes", "1K"}, "--min-bytes: .*"},
      {{"barrier", "--json", "/nowhere/x.json"},
       "--json: cannot write /nowhere/x.json: No such file or directory"},
      {{"tune", "--model", "/nowhere/x.json"},
       "--model: cannot write /nowhere/x.json: No such file or directory"},
      {{"explain", "all_reduce", "--bytes", "8", "--model", "/nowhere"}, ".*/nowhere.*"},
      {{"explain", "all_reduce", "--bytes", "8", "--hosts", "1000000", "--ranks-per-host", "4096"},
       "--hosts: 1000000 of 4096 ranks are more than 4194304 ranks"},
  };
  for (const auto& [words, message] : wrong) {
    const auto done = run(words);
    EXPECT_EQ(done.exit_code, kExitUsage) << message;
    EXPECT_THAT(done.error, ::testing::MatchesRegex("dbench: " + message + "\n"));
    EXPECT_EQ(done.out, "");
  }
}

TEST_F(Dbench, SaysThatARootIsMissing) {
  const auto root = run({"broadcast", "--nproc", "2", "--root", "2", "--counts", "1"});
  EXPECT_EQ(root.exit_code, kExitUsage);
  EXPECT_THAT(root.error, HasSubstr("dbench: --root: there is no rank 2 among 2"));
}

TEST_F(Dbench, SaysOfWhatATableIs) {
  const auto head = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--nproc", "1", "--iterations", "1", "--warmup", "0"});
    const auto done = run(words);
    EXPECT_EQ(done.exit_code, kExitOk) << done.error;
    return done.out.substr(0, done.out.find('\n'));
  };
  EXPECT_THAT(head({"barrier"}), ::testing::MatchesRegex("# dbench barrier: 1 rank on .* cores?"));
  EXPECT_THAT(head({"broadcast", "--counts", "1"}),
              ::testing::MatchesRegex("# dbench broadcast: 1 rank on .* cores?, f32"));
  EXPECT_THAT(head({"reduce", "--counts", "1", "--op", "max"}),
              ::testing::MatchesRegex("# dbench reduce: 1 rank on .* cores?, f32 max"));
}

TEST_F(Dbench, SaysWhyResultsCannotBeWrittenInTheEnd) {
  const auto done = run({"barrier", "--nproc", "1", "--iterations", "1", "--json", "/dev/full"});
  EXPECT_EQ(done.exit_code, kExitFailure);
  EXPECT_THAT(done.error, HasSubstr("dbench: cannot write /dev/full: No space left on device\n"));
}

// --- compare_collectives: the table it makes of runs

class CompareCollectives : public Dbench {
 protected:
  CompletedProcess report(const std::string& runs) const {
    std::ofstream(folder_ / "allreduce.jsonl") << runs << std::flush;
    return run_command({.arguments = {"/usr/bin/env", "python3",
                                      std::string(SOURCE_ROOT) + "/tools/bench/compare_collectives",
                                      "allreduce", "--report", "--out", folder_.string()}},
                       Deadline::after(kLimit));
  }
  static std::string run_line(const std::string& contender, int round, double us,
                              bool settled = true) {
    json cell = {{"count", 1000}, {"us", us}, {"us_p10", us * 0.9}, {"us_p90", us * 1.1}};
    json line = {
        {"contender", contender}, {"operation", "allreduce"}, {"ranks", 2},
        {"round", round},         {"settled", settled},       {"flag_ns", {100 + round, 100}},
        {"cells", {cell}}};
    return line.dump() + "\n";
  }
};

TEST_F(CompareCollectives, DividesOurTimeByTheBestPeersOfTheSameRound) {
  const auto python = run_command({.arguments = {"/usr/bin/env", "python3", "--version"}});
  if (python.exit_code != 0) GTEST_SKIP() << "python3 is not installed";
  const auto done =
      report(run_line("dlaunch", 0, 10) + run_line("Open MPI", 0, 20) + run_line("MPICH", 0, 40) +
             run_line("dlaunch", 1, 20) + run_line("Open MPI", 1, 80) + run_line("MPICH", 1, 50) +
             run_line("dlaunch", 2, 15) + run_line("Open MPI", 2, 20) + run_line("MPICH", 2, 60) +
             run_line("dlaunch", 3, 900, false));
  // ratios 10/20, 20/50, 15/20; the unsettled round does not count
  EXPECT_EQ(done.exit_code, 0) << done.error;
  EXPECT_THAT(done.out, HasSubstr(" 0.50  Open MPI"));
  EXPECT_THAT(done.out, HasSubstr("    2      1,000          15.0          20.0          50.0"));
  EXPECT_THAT(done.out, HasSubstr("geometric mean of the ratios 0.50"));
  EXPECT_TRUE(fs::exists(folder_ / "allreduce.txt"));
}

}  // namespace
}  // namespace dlaunch::testing
