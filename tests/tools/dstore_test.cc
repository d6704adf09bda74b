// dstore, looking into the store of a real job.
#include <signal.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/token.h"
#include "runtime/rendezvous/store_server.h"
#include "runtime/rendezvous/tcp_store.h"
#include "tests/support/soon.h"
#include "tests/support/subprocess.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;

// A store with the secret in a file, as a job of several nodes has it.
class DstoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(token_file_) << token_to_hex(token_);
    ASSERT_EQ(chmod(token_file_.c_str(), 0600), 0);
  }
  void TearDown() override { unlink(token_file_.c_str()); }

  Command dstore(const std::vector<std::string>& arguments) const {
    Command command{.arguments = {built_program("dstore"), "--endpoint", address_, "--token-file",
                                  token_file_}};
    command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
    return command;
  }

  const std::string token_ = make_token();
  const std::string token_file_ = ::testing::TempDir() + "/dstore_test." + std::to_string(getpid());
  const std::unique_ptr<StoreServer> server_ =
      StoreServer::start({.token = token_}).value_or_throw();
  const std::string address_ = "127.0.0.1:" + std::to_string(server_->port());
  const std::unique_ptr<TcpStore> store_ =
      TcpStore::connect(address_, token_, soon()).value_or_throw();
};

TEST_F(DstoreTest, PrintsValuesAsTheyAreAndListsThemOnOneLineEach) {
  ASSERT_TRUE(store_->set("a/1", "two\nlines").ok());
  ASSERT_TRUE(store_->set("a/2", std::string(1000, 'x')).ok());
  ASSERT_TRUE(store_->set("b", "").ok());
  EXPECT_EQ(run_command(dstore({"get", "b", "a/1"})).out, "\ntwo\nlines\n");
  EXPECT_EQ(run_command(dstore({"list", "a/"})).out,
            "a/1 = two\\x0alines\na/2 = " + std::string(64, 'x') + "... (1000 bytes)\n");
}

TEST_F(DstoreTest, WaitsForKeysAndNamesThoseThatDoNotCome) {
  const auto result = run_command(dstore({"get", "r/0", "r/1", "r/2", "--timeout", "2"}));
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(result.error, "dstore: store: no value for 'r/0', 'r/1', 'r/2'\n");
}

TEST_F(DstoreTest, ShowsChangesAsTheyHappen) {
  ASSERT_TRUE(store_->set("before", "1").ok());
  Subprocess watching(dstore({"watch"}));
  ASSERT_TRUE(watching.wait_for_output("before = 1\n", soon()));
  ASSERT_TRUE(store_->set("after", "2").ok());
  ASSERT_TRUE(watching.wait_for_output("after = 2\n", soon()));
  ASSERT_TRUE(store_->remove("before").ok());
  ASSERT_TRUE(watching.wait_for_output("before removed\n", soon()));
}

TEST_F(DstoreTest, SetsRemovesAndCounts) {
  EXPECT_EQ(run_command(dstore({"set", "key", "value"})).exit_code, 0);
  EXPECT_EQ(*store_->get("key", soon()), "value");
  EXPECT_THAT(run_command(dstore({"stat"})).out, HasSubstr("keys: 1\n"));
  EXPECT_EQ(run_command(dstore({"remove", "key"})).exit_code, 0);
  const auto again = run_command(dstore({"remove", "key"}));
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_EQ(again.error, "dstore: there is no key 'key'\n");
}

TEST_F(DstoreTest, ShowsKeysAsTheRankOfAPrefixNamesThem) {
  const auto rank = TcpStore::connect(address_, token_, soon(), "attempt 1/").value_or_throw();
  ASSERT_TRUE(rank->set("world/0", "here").ok());
  EXPECT_EQ(run_command(dstore({"list", "world/", "--prefix", "attempt 1/"})).out,
            "world/0 = here\n");
  Command own = dstore({"list"});
  own.environment = {{"DLAUNCH_STORE_PREFIX", "attempt 1/"}};
  EXPECT_EQ(run_command(own).out, "world/0 = here\n");
  own.arguments.insert(own.arguments.end(), {"--prefix", ""});
  EXPECT_EQ(run_command(own).out, "attempt 1/world/0 = here\n");
}

TEST_F(DstoreTest, SendsNoControlCharactersOfKeysToATerminal) {
  const auto none = run_command(dstore({"get", "red \x1b[31m", "--timeout", "2"}));
  EXPECT_EQ(none.error, "dstore: store: no value for 'red \\x1b[31m'\n");
}

TEST_F(DstoreTest, RefusesTimesAndPortsThatAreNone) {
  for (const char* time : {"nan", "-1", "inf", "soon"}) {
    const auto result = run_command(dstore({"set", "key", "value", "--timeout", time}));
    EXPECT_EQ(result.exit_code, 2) << time;
    EXPECT_THAT(result.error, HasSubstr("--timeout")) << time;
  }
  EXPECT_FALSE(store_->try_get({"key"})->front());
  Command beyond = dstore({"list"});
  beyond.arguments[2] = "127.0.0.1:" + std::to_string(server_->port() + 65536);
  const auto result = run_command(beyond);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.error, HasSubstr("with a port from 1 to 65535"));
}

TEST_F(DstoreTest, OutputThatIsLostIsAFailure) {
  ASSERT_TRUE(store_->set("key", "value").ok());
  for (const std::string& action : {std::string("get key"), std::string("list")}) {
    Command command = dstore({});
    std::string line = "exec";
    for (const std::string& word : command.arguments) line += " '" + word + "'";
    const auto result =
        run_command({.arguments = {"/bin/sh", "-c", line + " " + action + " >/dev/full"}});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.error, "dstore: cannot write to standard output: No space left on device\n");
  }
  EXPECT_EQ(*store_->get("key", soon()), "value");
}

TEST_F(DstoreTest, IsRefusedWithAnotherSecret) {
  std::ofstream(token_file_) << token_to_hex(make_token());
  const auto result = run_command(dstore({"list"}));
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.error, HasSubstr("refused this job's token"));
  EXPECT_EQ(server_->clients_refused(), 1U);
}

TEST_F(DstoreTest, SaysWhatItNeedsToKnow) {
  const auto bare = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), built_program("dstore"));
    const auto result =
        run_command({.arguments = arguments,
                     .unset = {"DLAUNCH_STORE", "DLAUNCH_TOKEN", "DLAUNCH_TOKEN_FILE"}});
    EXPECT_EQ(result.exit_code, 2);
    return result.error;
  };
  EXPECT_THAT(bare({"list"}), HasSubstr("which store?"));
  EXPECT_THAT(bare({"--endpoint", "h:1", "list"}), HasSubstr("which secret?"));
  EXPECT_THAT(bare({"--endpoint", "h:1", "--token-file", "/nowhere", "list"}),
              HasSubstr("'/nowhere'"));
  EXPECT_THAT(bare({"--pid", "999999999", "list"}), HasSubstr("no such process"));
}

TEST(Dstore, FindsTheStoreOfARunningJobByTheProcessOfARank) {
  Subprocess job({.arguments = {built_program("dlaunch"), "--nproc", "1", "sh", "-c",
                                "echo pid $$ end; sleep 60; exit 0"}});
  ASSERT_TRUE(job.wait_for_output(" end\n", soon()));
  const std::string pid = job.output().substr(4, job.output().find(" end") - 4);
  const auto result = run_command({.arguments = {built_program("dstore"), "--pid", pid, "stat"},
                                   .unset = {"DLAUNCH_STORE", "DLAUNCH_TOKEN"}});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("clients: 1\n"));
  job.send_signal(SIGTERM);
  (void)job.finish(soon());
}

}  // namespace
}  // namespace dlaunch::testing
