// What dlaunch says about a failure that the program itself said nothing about, or said it in words
// that are found among its last lines.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "launcher/failure/probable_cause.h"
#include "runtime/base/descriptor.h"
#include "tests/launcher/launcher_runs.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// dlaunch's own lines of a job in which rank 1 does `actions` while the other one waits.
std::string story_of(Strings actions, int exit_code) {
  actions.insert(actions.begin(), "only=1");
  actions.insert(actions.end(), {"only=0", "pause"});
  const auto result = run_command(ranks_that(actions, 2));
  EXPECT_EQ(result.exit_code, exit_code) << result.error;
  EXPECT_THAT(result.error, HasSubstr("dlaunch: rank 1 (pid "));
  EXPECT_THAT(result.error,
              HasSubstr("dlaunch: the other ranks: 0 ended by SIGTERM (collateral)\n"));
  return result.error;
}

std::string by_signal(int number) {
  return "raise=" + std::to_string(number);
}

TEST(PostMortem, NamesTheHost) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  EXPECT_THAT(story_of({"exit=3"}, 3), HasSubstr(" on " + std::string(host) + ") failed"));
}

TEST(PostMortem, RecognisesASegmentationFault) {
  // A sanitizer's handler would make an exit code of it.
  const auto story = story_of({"default=" + std::to_string(SIGSEGV), by_signal(SIGSEGV)}, 139);
  EXPECT_THAT(story, HasSubstr("was killed by SIGSEGV"));
  EXPECT_THAT(story, HasSubstr("dlaunch: probable cause: a segmentation fault"));
}

// Whether the kernel's log tells this process of faults, by the numbers it knows processes by.
bool kernel_tells_of_faults() {
  int told = 0;
  std::ifstream("/proc/sys/debug/exception-trace") >> told;
  std::error_code error;
  const auto numbers = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  const Descriptor log(open("/dev/kmsg", O_RDONLY | O_CLOEXEC));
  return told == 1 && numbers == "pid:[4026531836]" && log.is_open();
}

TEST(PostMortem, TellsWhereAFaultWas) {
  if (kSanitized) GTEST_SKIP() << "sanitizers tell of faults themselves";
  if (!kernel_tells_of_faults()) GTEST_SKIP() << "the kernel's log cannot be read here";
  EXPECT_THAT(story_of({"fault"}, 139),
              MatchesRegex(".*\ndlaunch: probable cause: a segmentation fault: a bad pointer "
                           "\\(address 0x[0-9a-f]+\\), in test_rank\\+0x[0-9a-f]+\n.*"));
}

TEST(PostMortem, ComesAfterTheStackOfARankThatUsesTheRuntime) {
  if (kSanitized) GTEST_SKIP() << "sanitizers tell of faults themselves";
  const auto result = run_command(ranks_of(
      "comm_rank", {"connect", "only=1", by_signal(SIGSEGV), "only=0", "pause"}, {"--nproc", "2"}));
  EXPECT_EQ(result.exit_code, 139);
  EXPECT_THAT(result.error,
              MatchesRegex("\\[rank 1\\] SIGSEGV, sent by a process, in the thread with this stack "
                           "[^\n]*\n(\\[rank 1\\] [^\n]*\\[0x[0-9a-f]+\\]\n)+"
                           "dlaunch: rank 1 \\(pid [^\n]* was killed by SIGSEGV after .*"));
  EXPECT_THAT(result.error, HasSubstr("/comm_rank("));
}

TEST(PostMortem, QuotesAFailedAssertion) {
  EXPECT_THAT(story_of({"assert"}, 134),
              MatchesRegex(".*\ndlaunch: probable cause: an assertion failed: [^\n]*test_rank.cc:"
                           "[0-9]+: [^\n]*number == 42[^\n]*\n.*"));
}

TEST(PostMortem, QuotesAnExceptionThatNobodyCaught) {
  EXPECT_THAT(story_of({"throw=the file is upside down"}, 134),
              HasSubstr("dlaunch: probable cause: an exception that nobody caught: "
                        "std::runtime_error: the file is upside down\n"));
}

TEST(PostMortem, RecognisesAnAbort) {
  EXPECT_THAT(story_of({"abort"}, 134), HasSubstr("dlaunch: probable cause: it called abort()\n"));
}

TEST(PostMortem, RecognisesARefusedAllocation) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need all of the address space";
  EXPECT_THAT(story_of({"limit=200", "hog=1000"}, 134),
              HasSubstr("dlaunch: probable cause: out of memory: an allocation was refused"));
}

TEST(PostMortem, DoesNotKnowWhoKilledARank) {
  EXPECT_THAT(story_of({by_signal(SIGKILL)}, 137),
              HasSubstr("dlaunch: probable cause: killed from outside"));
}

TEST(PostMortem, KnowsTheLimitOfProcessorTime) {
  const auto result =
      run_command({.arguments = {"/bin/sh", "-c",
                                 "ulimit -t 1; exec " + built_program("dlaunch") +
                                     " --nproc 1 /bin/sh -c 'while :; do :; done'"}});
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_THAT(result.error, HasSubstr("dlaunch: probable cause: killed by the kernel, as its limit "
                                      "of processor time (ulimit -t) was used up, or by "));
}

TEST(PostMortem, SaysNothingOfACodeThatItDoesNotKnow) {
  EXPECT_THAT(story_of({"err=something", "exit=4"}, 4), Not(HasSubstr("probable cause")));
}

TEST(PostMortem, QuotesTheLastLineOfAProgramWhoseCodesItKnows) {
  const auto cause_of = [](int code, const Strings& lines, bool ours = true) {
    return probable_cause({.wait_status = W_EXITCODE(code, 0),
                           .last_lines = lines,
                           .recorded = {},
                           .kernel = {},
                           .near_processor_limit = false,
                           .speaks_our_protocol = ours});
  };
  const Strings lines{"something else", "sum: send: peer 7 is not in a world of 3"};
  for (const int code : {2, 3, 4}) EXPECT_EQ(cause_of(code, lines), lines.back()) << code;
  for (const int code : {2, 3, 4}) EXPECT_EQ(cause_of(code, {}), "") << code;
  EXPECT_EQ(cause_of(1, lines), "");
  EXPECT_EQ(cause_of(2, lines, false), "");
}

TEST(PostMortem, FindsWhereTheLongReportOfASanitizerBegins) {
  const std::string report =
      "echo '==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1' >&2; "
      "for i in $(seq 60); do echo \"  line $i\" >&2; done; exit 1";
  const auto result =
      run_command({.arguments = {built_program("dlaunch"), "--nproc", "1", "--report",
                                 "/dev/stdout", "/bin/sh", "-c", report}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.error, HasSubstr("dlaunch: probable cause: ==7==ERROR: AddressSanitizer: "
                                      "heap-buffer-overflow on address 0x1\n"));
  const auto json = nlohmann::json::parse(result.out);
  const auto lines = json.at("attempts").at(0).at("ranks").at(0).at("last_lines").get<Strings>();
  ASSERT_EQ(lines.size(), 21U);
  EXPECT_THAT(lines[0], HasSubstr("AddressSanitizer"));
  EXPECT_EQ(lines[1], "  line 41");
}

TEST(PostMortem, FindsTheSignalBehindAShell) {
  const auto result =
      run_command({.arguments = {built_program("dlaunch"), "--nproc", "1", "/bin/sh", "-c",
                                 "sh -c 'kill -SEGV $$'; exit $?"}});
  EXPECT_EQ(result.exit_code, 139);
  EXPECT_THAT(result.error, HasSubstr("failed with exit code 139"));
  EXPECT_THAT(result.error, HasSubstr("probable cause: a segmentation fault"));
}

TEST(PostMortem, QuotesAPythonException) {
  const std::string python =
      run_command({.arguments = {"/bin/sh", "-c", "command -v python3"}}).out;
  if (python.empty()) GTEST_SKIP() << "there is no python3";
  const std::string script =
      "import os, time\n"
      "def load(name):\n"
      "    raise ValueError('cannot load ' + name)\n"
      "load('weights') if os.environ['RANK'] == '1' else time.sleep(60)\n";
  const auto result = run_command(
      {.arguments = {built_program("dlaunch"), "--nproc", "2", "python3", "-c", script}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.error, HasSubstr("dlaunch: rank 1 "));
  EXPECT_THAT(result.error, HasSubstr("dlaunch: probable cause: a Python exception: "
                                      "ValueError: cannot load weights\n"));
}

// As PyTorch's hook writes it once a process group is initialised.
TEST(PostMortem, QuotesAPythonExceptionOfPyTorchsRank) {
  const auto result =
      story_of({"err=[rank1]: Traceback (most recent call last):",
                "err=[rank1]:   File \"tt.py\", line 8, in <module>", "err=[rank1]:     main()",
                "err=[rank1]:     ^^^^^^", "err=[rank1]: RuntimeError: the loss is NaN", "exit=1"},
               1);
  EXPECT_THAT(result, HasSubstr("dlaunch: probable cause: a Python exception: "
                                "RuntimeError: the loss is NaN\n"));
}

TEST(PostMortem, PrefersAPythonExceptionToTheDisorderThatFollows) {
  const std::string ended = "err=terminate called without an active exception";
  EXPECT_THAT(story_of({"err=Traceback (most recent call last):", "err=  File \"tt.py\", line 8",
                        "err=ValueError: upside down", ended, "abort"},
                       134),
              HasSubstr("dlaunch: probable cause: a Python exception: ValueError: upside down\n"));
  EXPECT_THAT(story_of({ended, "abort"}, 134),
              HasSubstr("dlaunch: probable cause: std::terminate was called\n"));
}

// As PyTorch's @record writes it.
std::string recorded(const std::string& message, const std::string& seconds = "1700000000") {
  return R"(record={"message": {"message": ")" + message + R"(", "extraInfo": {"py_callstack": )" +
         R"("Traceback (most recent call last):\n  File \"lib.py\", line 3, in wrapper\n)" +
         R"(  File \"train.py\", line 8, in load\n    open(name)\n", "timestamp": ")" + seconds +
         R"("}}})";
}

TEST(PostMortem, PrefersWhatTheProgramHasRecordedItself) {
  EXPECT_THAT(story_of({recorded("ValueError: upside\\ndown"),
                        "err=Traceback (most recent call last):", "err=  File \"x.py\", line 1",
                        "err=SystemExit: 1", "exit=1"},
                       1),
              HasSubstr("dlaunch: probable cause: a Python exception: ValueError: upside "
                        "(train.py:8, in load)\n"));
  EXPECT_THAT(story_of({recorded("MemoryError: "), "abort"}, 134),
              HasSubstr("dlaunch: probable cause: out of memory: Python's MemoryError"));
}

TEST(PostMortem, DoesWithoutARecordThatIsNone) {
  for (const char* text : {"record=", "record={\"message\": ", "record={\"message\": 3}",
                           "record=[]", "record={\"message\": {\"extraInfo\": 1}}"}) {
    EXPECT_THAT(story_of({text, "err=free(): invalid pointer", "exit=1"}, 1),
                HasSubstr("dlaunch: probable cause: free(): invalid pointer\n"))
        << text;
  }
}

// Rank 0 has failed first, and takes long to end.
TEST(PostMortem, TellsOfAnotherRanksEarlierException) {
  const std::string one = std::to_string(SIGUSR1);
  Subprocess job(ranks_that(
      {"only=0", "ignore=" + one, recorded("ValueError: upside down"), "out=recorded", "pause",
       "only=1", recorded("RuntimeError: peer lost", "1800000000"), "await=" + one, "exit=1"},
      2));
  ASSERT_TRUE(job.wait_for_output("recorded\n", soon()));
  ASSERT_TRUE(job.wait_for_output("1 waits\n", soon()));
  job.send_signal(SIGUSR1);
  const auto result = job.finish(soon());
  EXPECT_THAT(
      result.error,
      HasSubstr("a Python exception: RuntimeError: peer lost (train.py:8, in load); before "
                "it, in rank 0, a Python exception: ValueError: upside down (train.py:8, in "
                "load)\n"));
}

TEST(PostMortem, LeavesNoRecordBehind) {
  for (const char* ending : {"exit=1", "pause"}) {
    Subprocess job(ranks_that(
        {recorded("ValueError: upside down"), "env=TORCHELASTIC_ERROR_FILE", "out={rank} up",
         ending},
        {"--nproc", "1", "--max-restarts", "1", "--ready-after", "0", "--restart-delay", "0"}));
    ASSERT_TRUE(job.wait_for_output("0 up\n", soon()));
    const std::string name = "TORCHELASTIC_ERROR_FILE=";
    const auto begin = job.output().find(name) + name.size();
    const std::filesystem::path file =
        job.output().substr(begin, job.output().find('\n', begin) - begin);
    EXPECT_THAT(file.string(), HasSubstr("/attempt-0-rank-0.json"));
    const auto launchers = children_of(job.pid());
    // The guard tidies up behind a launcher that is killed.
    if (std::string(ending) == "pause") {
      ASSERT_EQ(launchers.size(), 1U);
      kill(launchers[0], SIGKILL);
    }
    job.finish(soon());
    EXPECT_FALSE(std::filesystem::exists(file.parent_path())) << file;
  }
}

TEST(PostMortem, FindsWhatWasRecordedInALaterAttempt) {
  const auto result = run_command(ranks_that(
      {"fail-before=1", recorded("ValueError: the second time"), "exit=1"},
      {"--nproc", "1", "--max-restarts", "1", "--ready-after", "0", "--restart-delay", "0"}));
  EXPECT_THAT(result.error, HasSubstr("ValueError: the second time"));
}

// A memory cgroup of 64 MiB, if this process may make one.
class SmallCgroup {
 public:
  SmallCgroup() {
    const std::string name = "/dlaunch-test-" + std::to_string(getpid());
    for (const char* root : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      std::error_code error;
      if (!std::filesystem::create_directory(root + name, error)) continue;
      path_ = root + name;
      for (const char* limit : {"/memory.limit_in_bytes", "/memory.max"}) {
        if (std::filesystem::exists(path_ + limit)) {
          limited_ = static_cast<bool>(std::ofstream(path_ + limit) << (64 << 20) << std::flush);
        }
      }
      for (const char* swap : {"/memory.swappiness", "/memory.swap.max"}) {
        if (std::filesystem::exists(path_ + swap)) std::ofstream(path_ + swap) << 0;
      }
      return;
    }
  }
  ~SmallCgroup() {
    if (!path_.empty()) rmdir(path_.c_str());
  }
  SmallCgroup(const SmallCgroup&) = delete;
  SmallCgroup& operator=(const SmallCgroup&) = delete;

  bool usable() const { return limited_; }
  std::string members() const { return path_ + "/cgroup.procs"; }

 private:
  std::string path_;
  bool limited_ = false;
};

TEST(PostMortem, HasTheKernelsWordForWantOfMemory) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need more memory than the cgroup of this test has";
  const SmallCgroup cgroup;
  if (!cgroup.usable()) GTEST_SKIP() << "this user may not make a memory cgroup";
  const auto command = ranks_that({"only=1", "hog=500", "only=0", "pause"}, 2);
  Command inside{
      .arguments = {"/bin/sh", "-c", "echo $$ > " + cgroup.members() + " && exec \"$@\"", "sh"}};
  inside.arguments.insert(inside.arguments.end(), command.arguments.begin(),
                          command.arguments.end());
  const auto result = run_command(inside);
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_THAT(result.error, HasSubstr("dlaunch: rank 1 "));
  EXPECT_THAT(result.error, HasSubstr("dlaunch: probable cause: out of memory: the kernel"));
}

}  // namespace
}  // namespace dlaunch::testing
