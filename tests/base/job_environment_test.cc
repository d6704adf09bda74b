#include "runtime/base/job_environment.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/token.h"

namespace dlaunch {
namespace {

using std::chrono::milliseconds;

const char* const kVariables[] = {"RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_RANK",
                                  "LOCAL_WORLD_SIZE",
                                  "DLAUNCH_STORE",
                                  "DLAUNCH_TOKEN",
                                  "DLAUNCH_TOKEN_FILE",
                                  "DLAUNCH_JOB_ID",
                                  "DLAUNCH_STORE_PREFIX",
                                  "DLAUNCH_NODES",
                                  "DLAUNCH_TIMEOUT",
                                  "DLAUNCH_TRANSPORT",
                                  "DLAUNCH_INTERFACE",
                                  "DLAUNCH_REDUCE_ORDER",
                                  "DLAUNCH_COST_MODEL",
                                  "DLAUNCH_LOCAL_CORES",
                                  "DLAUNCH_ACTIVITY",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "PMI_SIZE",
                                  "SLURM_STEP_NUM_TASKS"};

// Reads an environment that holds these variables and no others of dlaunch's.
Result<JobEnvironment> read(const std::map<std::string, std::string>& variables) {
  for (const char* name : kVariables) ::unsetenv(name);  // NOLINT(concurrency-mt-unsafe)
  for (const auto& [name, value] : variables) {
    ::setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
  return read_job_environment();
}

const std::string kHex(64, 'a');

std::map<std::string, std::string> complete() {
  return {{"RANK", "2"},
          {"WORLD_SIZE", "5"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "3"},
          {"DLAUNCH_STORE", "127.0.0.1:4242"},
          {"DLAUNCH_TOKEN", kHex},
          {"DLAUNCH_JOB_ID", "job-7"},
          {"DLAUNCH_NODES", "2"},
          {"DLAUNCH_TIMEOUT", "1.5"}};
}

TEST(JobEnvironment, HasTheInterfaceForOtherNodes) {
  auto variables = complete();
  EXPECT_EQ(read(variables)->interface, "");
  variables["DLAUNCH_INTERFACE"] = "ib0";
  EXPECT_EQ(read(variables)->interface, "ib0");
}

TEST(JobEnvironment, IsAWorldOfOneWithoutDlaunch) {
  const auto job = read({});
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  EXPECT_FALSE(job->launched());
  EXPECT_EQ(job->rank, 0);
  EXPECT_EQ(job->world_size, 1);
  EXPECT_EQ(job->timeout, kDefaultTimeout);
}

TEST(JobEnvironment, OfSeveralRanksThatAnotherLauncherStartedIsRefused) {
  for (const char* name :
       {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const Status status = read({{name, "2"}}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_NE(status.to_string().find(std::string("variable ") + name), std::string::npos)
        << status.to_string();
    EXPECT_NE(status.to_string().find("start them with it (dlaunch --nproc)"), std::string::npos);
    EXPECT_TRUE(read({{name, "1"}}).ok()) << name;
    auto launched = complete();
    launched.emplace(name, "9");
    EXPECT_TRUE(read(launched).ok()) << name << " beside dlaunch's own";
  }
}

TEST(JobEnvironment, HoldsWhatDlaunchSet) {
  const auto job = read(complete());
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  EXPECT_TRUE(job->launched());
  EXPECT_EQ(job->rank, 2);
  EXPECT_EQ(job->world_size, 5);
  EXPECT_EQ(job->local_rank, 1);
  EXPECT_EQ(job->local_world_size, 3);
  EXPECT_EQ(job->nodes, 2);
  EXPECT_EQ(job->store_address, "127.0.0.1:4242");
  EXPECT_EQ(job->token, std::string(32, '\xaa'));
  EXPECT_EQ(job->job_id, "job-7");
  EXPECT_EQ(job->timeout, milliseconds(1500));
}

TEST(JobEnvironment, ReadsWhatTransportIsForced) {
  auto variables = complete();
  EXPECT_EQ(read(variables)->transport, TransportChoice::kAuto);
  const std::pair<const char*, TransportChoice> choices[] = {
      {"", TransportChoice::kAuto},
      {"auto", TransportChoice::kAuto},
      {"tcp", TransportChoice::kTcp},
      {"shm", TransportChoice::kSharedMemory}};
  for (const auto& [text, choice] : choices) {
    variables["DLAUNCH_TRANSPORT"] = text;
    const auto job = read(variables);
    ASSERT_TRUE(job.ok()) << job.status().to_string();
    EXPECT_EQ(job->transport, choice) << text;
  }
}

TEST(JobEnvironment, ReadsInWhichOrderReductionsTakeTheirOperands) {
  auto variables = complete();
  EXPECT_FALSE(read(variables)->reduce_in_rank_order);
  const std::pair<const char*, bool> choices[] = {{"", false}, {"any", false}, {"ranks", true}};
  for (const auto& [text, in_rank_order] : choices) {
    variables["DLAUNCH_REDUCE_ORDER"] = text;
    const auto job = read(variables);
    ASSERT_TRUE(job.ok()) << job.status().to_string();
    EXPECT_EQ(job->reduce_in_rank_order, in_rank_order) << text;
  }
}

TEST(JobEnvironment, HandsOnTheFileOfTheCostModel) {
  auto variables = complete();
  EXPECT_EQ(read(variables)->cost_model, "");
  variables["DLAUNCH_COST_MODEL"] = "/models/mine.json";
  EXPECT_EQ(read(variables)->cost_model, "/models/mine.json");
}

TEST(JobEnvironment, ReadsTheTokenFromAFile) {
  const std::string path =
      ::testing::TempDir() + "/job_environment_test_token." + std::to_string(getpid());
  std::ofstream(path) << kHex << '\n';
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  auto variables = complete();
  variables.erase("DLAUNCH_TOKEN");
  variables["DLAUNCH_TOKEN_FILE"] = path;
  const auto job = read(variables);
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  EXPECT_EQ(job->token, std::string(32, '\xaa'));

  std::ofstream(path) << "no token\n";
  EXPECT_NE(read(variables).status().to_string().find(path), std::string::npos);
  std::remove(path.c_str());
  EXPECT_NE(read(variables).status().to_string().find(path), std::string::npos);
}

TEST(JobEnvironment, ReadsThePrefixOfTheStoresKeys) {
  auto variables = complete();
  EXPECT_EQ(read(variables)->store_prefix, "");
  variables["DLAUNCH_STORE_PREFIX"] = "attempt 3/";
  EXPECT_EQ(read(variables)->store_prefix, "attempt 3/");
}

TEST(JobEnvironment, NamesAVariableThatIsMissing) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "DLAUNCH_TOKEN"}) {
    auto variables = complete();
    variables.erase(name);
    const auto job = read(variables);
    ASSERT_FALSE(job.ok()) << name;
    EXPECT_EQ(job.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(job.status().to_string().find(std::string("variable ") + name), std::string::npos)
        << job.status().to_string();
  }
}

TEST(JobEnvironment, NamesAVariableWithAnImpossibleValue) {
  const std::pair<const char*, const char*> wrong[] = {{"RANK", "5"},
                                                       {"RANK", "-1"},
                                                       {"RANK", ""},
                                                       {"RANK", "2x"},
                                                       {"RANK", " 2"},
                                                       {"RANK", "99999999999999999999"},
                                                       {"WORLD_SIZE", "0"},
                                                       {"WORLD_SIZE", "two"},
                                                       {"LOCAL_RANK", "3"},
                                                       {"LOCAL_WORLD_SIZE", "6"},
                                                       {"LOCAL_WORLD_SIZE", "0"},
                                                       {"DLAUNCH_NODES", "0"},
                                                       {"DLAUNCH_TRANSPORT", "TCP"},
                                                       {"DLAUNCH_TRANSPORT", "shared"},
                                                       {"DLAUNCH_REDUCE_ORDER", "rank"},
                                                       {"DLAUNCH_REDUCE_ORDER", "RANKS"},
                                                       {"DLAUNCH_TIMEOUT", "0"},
                                                       {"DLAUNCH_TIMEOUT", "-3"},
                                                       {"DLAUNCH_TIMEOUT", "nan"},
                                                       {"DLAUNCH_TIMEOUT", "inf"},
                                                       {"DLAUNCH_TIMEOUT", "5s"},
                                                       {"DLAUNCH_TIMEOUT", ""},
                                                       {"DLAUNCH_TOKEN", "secret"}};
  for (const auto& [name, value] : wrong) {
    auto variables = complete();
    variables[name] = value;
    const auto job = read(variables);
    ASSERT_FALSE(job.ok()) << name << "=" << value;
    EXPECT_EQ(job.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(job.status().to_string().find(name), std::string::npos) << job.status().to_string();
  }
}

}  // namespace
}  // namespace dlaunch
