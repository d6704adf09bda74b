// The scripts in tools/ as their users call them, in a folder in which what they start (the set-up,
// cmake, ctest, dlaunch) is put down in a file and does nothing.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/exit_codes.h"
#include "runtime/base/temporary_folder.h"
#include "tests/support/subprocess.h"

namespace dlaunch::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

constexpr const char* kHelpOfCtest =
    "[ \"$1\" = --help ] && echo '  -R <regex>, --tests-regex <regex>' && exit 0\n";

class Scripts : public ::testing::Test {
 protected:
  Scripts() {
    const fs::path source(SOURCE_ROOT);
    for (const char* file : {"tools/quickstart", "tools/run_tests", "tools/fuzz", ".ci/run",
                             "tools/test_summary", "tools/packages.sh", "CMakePresets.json"}) {
      fs::create_directories((root_ / file).parent_path());
      fs::copy_file(source / file, root_ / file);
    }
    for (const char* target : {"store", "json"})
      write(std::string("tests/fuzz/") + target + "_fuzz.cc", "");
    write("data/cifar-100-binary/train.bin", "");
    write("data/cifar-100-binary/test.bin", "");
    for (const char* name : {"tools/setup", "path/cmake", "build/bin/dlaunch"}) write_program(name);
    write_program("path/ctest", kHelpOfCtest);
  }

  void write(const std::string& name, const std::string& content) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << content << std::flush;
  }
  // One that puts down its arguments, after what `script` does.
  void write_program(const std::string& name, const std::string& script = "") const {
    write(name, "#!/bin/sh\n" + script + "echo \"" + fs::path(name).filename().string() +
                    " $*\" >>\"" + (root_ / "calls").string() + "\"\n");
    fs::permissions(root_ / name, fs::perms::owner_all);
  }

  CompletedProcess run(const std::string& script, const Strings& arguments) const {
    fs::remove(root_ / "calls");
    Strings words{(root_ / script).string()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const std::string path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): read only
    return run_command(
        {.arguments = words, .environment = {{"PATH", (root_ / "path").string() + ":" + path}}});
  }
  // What the last run has started, a line each.
  std::string calls() const {
    std::ostringstream text;
    if (fs::exists(root_ / "calls")) text << std::ifstream(root_ / "calls").rdbuf();
    return text.str();
  }

  const TemporaryFolder temporary_;
  const fs::path root_ = fs::path(temporary_.path()) / "a checkout";
};

TEST_F(Scripts, RefuseWrongArgumentsBeforeTheyDoAnything) {
  struct Case {
    std::string script;
    Strings arguments;
    std::string why;
  };
  for (const auto& [script, arguments, why] : std::vector<Case>{
           {"tools/quickstart", {"--seconds"}, "--seconds needs a whole number above 0"},
           {"tools/quickstart", {"--seconds", "abc"}, "--seconds needs a whole number above 0"},
           {"tools/quickstart", {"--seconds=0"}, "--seconds needs a whole number above 0"},
           {"tools/quickstart", {"--second", "30"}, "'--second' is neither --seconds nor --set"},
           {"tools/quickstart", {"--set", "a=b", "--seconds", "1.5"}, "--seconds needs a whole"},
           {"tools/quickstart", {"--set", "a"}, "--set needs KEY=VALUE"},
           {"tools/quickstart", {"30"}, "'30' is neither --seconds nor --set"},
           {"tools/run_tests", {"--preset"}, "--preset '' is none of release dev asan tsan cuda"},
           {"tools/run_tests", {"--preset=fuzz"}, "--preset 'fuzz' is none of release dev asan"},
           {"tools/run_tests", {"--presets=tsan"}, "ctest has no option --presets=tsan"},
           {"tools/run_tests", {"-R", "x", "--preset", "tsan"}, "--preset comes first"},
           {"tools/run_tests", {"tsan"}, "'tsan' belongs to no option"},
           {"tools/fuzz", {"abc"}, "'abc' is none of the targets json store"},
           {"tools/fuzz", {"10", "store", "frame"}, "'frame' is none of the targets json store"},
           {"tools/fuzz", {"0"}, "0 seconds would never end"},
           {"tools/fuzz", {"--merg"}, "'--merg' is none of the targets json store"},
           {".ci/run", {"format", "speed"}, "no step 'speed'"},
           {"tools/test_summary", {}, "usage: tools/test_summary BUILD_DIR"},
       }) {
    const auto done = run(script, arguments);
    SCOPED_TRACE(script + " " + done.error);
    EXPECT_EQ(done.exit_code, kExitUsage);
    EXPECT_THAT(done.error, HasSubstr(why));
    EXPECT_EQ(std::count(done.error.begin(), done.error.end(), '\n'), 1);
    EXPECT_EQ(done.out, "");
    EXPECT_EQ(calls(), "");
  }
}

TEST_F(Scripts, ShowTheirHelpAndDoNothingElse) {
  for (const std::string script :
       {"tools/quickstart", "tools/run_tests", "tools/fuzz", ".ci/run", "tools/test_summary"}) {
    for (const char* option : {"-h", "--help"}) {
      const auto done = run(script, {option});
      EXPECT_EQ(done.exit_code, 0) << done.error;
      EXPECT_THAT(done.out, HasSubstr("  " + script + " "));
      EXPECT_EQ(calls(), "");
    }
  }
}

TEST_F(Scripts, QuickstartTrainsIntoAFolderOfItsOwn) {
  const auto done = run("tools/quickstart", {"--set", "a.b=1", "--seconds=008", "--set=c=x y"});
  EXPECT_EQ(done.exit_code, 0) << done.error;
  EXPECT_THAT(calls(),
              EndsWith("\ndlaunch --nproc 2 build/bin/dtrain configs/cifar100_resnet20.json "
                       "--set output.directory=runs/quickstart "
                       "--set train.max_seconds=8 --set a.b=1 --set c=x y\n"));
  EXPECT_THAT(done.out, HasSubstr("the real CIFAR-100 images in data/cifar-100-binary"));
}

constexpr const char* kLog = R"(Start testing: Nov 24 16:09 UTC
1/3 Testing: netns_test
1/3 Test: netns_test
Output:
[ RUN      ] Hosts.Reach
tests/comm/hosts_test.h:19: Skipped
there is no program ip (package iproute2)

[  SKIPPED ] Hosts.Reach (0 ms)
[       OK ] Hosts.Run (0 ms)
[ RUN      ] Hosts.Split
tests/comm/hosts_test.h:19: Skipped
there is no program ip (package iproute2)
[  SKIPPED ] Hosts.Split (12 ms)
[ RUN      ] Hosts.Silent
tests/comm/hosts_test.h:20: Skipped

[  SKIPPED ] Hosts.Silent (0 ms)
[  SKIPPED ] 3 tests, listed below:
[  SKIPPED ] Hosts.Reach
[  SKIPPED ] Hosts.Split
[  SKIPPED ] Hosts.Silent
Test Passed.
2/3 Testing: report_test
2/3 Test: report_test
test_a_full_disk (__main__.ReportTest) ... skipped 'no file system can be mounted'
test_a_run (__main__.ReportTest) ... ok
Test Passed.
3/3 Testing: mpi_contract_test
3/3 Test: mpi_contract_test
skipped: MPI was not found
Test Pass Reason:
Skip regular expression found in output. Regex=[skipped: ]
)";

// What ctest adds to it for one that failed, one that crashed, two without GoogleTest and two that
// it did not start.
constexpr const char* kFailedLog = R"(4/7 Test: launcher_test
[ RUN      ] Ends.WithTwoFailures/3
tests/launcher/ends_test.cc:7: Failure
Expected equality of these values:
  1
  2

tests/launcher/ends_test.cc:9: Failure
Failed

[  FAILED  ] Ends.WithTwoFailures/3, where GetParam() = 8 (12 ms)
[ RUN      ] Ends.Well
[       OK ] Ends.Well (1 ms)
[  FAILED  ] 1 test, listed below:
[  FAILED  ] Ends.WithTwoFailures/3, where GetParam() = 8
Test Failed.
5/7 Test: stress_test
[ RUN      ] Stress.Crashes
Test Failed.
6/7 Test: compare_test
test_a_ratio (__main__.CompareTest) ... FAIL
FAIL: test_a_ratio (__main__.CompareTest)
Test Failed.
7/7 Test: package_test
Test Failed.
----------------------------------------------------------

8/9 Testing: disabled_test
8/9 Test: disabled_test
"disabled_test" start time:
Test Passed.
----------------------------------------------------------

Unable to find executable: /build/bin/ring_test
9/9 Testing: ring_test
9/9 Test: ring_test
"ring_test" start time:
Test Passed.
)";

constexpr const char* kSkipped = R"(skipped: 1 of 3 tests, and 4 test cases of others
  2 test cases   netns_test: there is no program ip (package iproute2)
  1 test case    netns_test: no reason given
  1 test case    report_test: no file system can be mounted
  1 test         mpi_contract_test: MPI was not found
)";

constexpr const char* kFailed = R"(failed: 5 of 9 tests
  launcher_test: Ends.WithTwoFailures/3
      tests/launcher/ends_test.cc:7: Failure
      Expected equality of these values:
        1
        2
      tests/launcher/ends_test.cc:9: Failure
      Failed
  stress_test: Stress.Crashes did not end
  compare_test: test_a_ratio
  package_test: no test case of it
  ring_test: it was not run: Unable to find executable: /build/bin/ring_test
)";

TEST_F(Scripts, FailedTestCasesAreToldWithWhatWasWrong) {
  write("build/Testing/Temporary/LastTest.log", std::string(kLog) + kFailedLog);
  const auto done = run("tools/test_summary", {(root_ / "build").string()});
  EXPECT_EQ(done.exit_code, 0) << done.error;
  EXPECT_THAT(done.out, ::testing::StartsWith("skipped: 2 of 9 tests, and 4 test cases"));
  EXPECT_THAT(done.out, EndsWith(std::string("disabled_test: it is disabled\n") + kFailed));
}

TEST_F(Scripts, SkippedTestsAreCountedWithTheirReasons) {
  write("build/Testing/Temporary/LastTest.log", kLog);
  const auto done = run("tools/test_summary", {(root_ / "build").string()});
  EXPECT_EQ(done.exit_code, 0) << done.error;
  EXPECT_EQ(done.out, kSkipped);
}

TEST_F(Scripts, RunTestsHandsItsOptionsOnAndTellsOfThisRunWhatWasSkipped) {
  write("log", kLog);
  write("build-tsan/Testing/Temporary/LastTest.log", "of an earlier run");
  auto done = run("tools/run_tests", {"--preset", "tsan", "-R", "x", "-j8"});
  EXPECT_EQ(done.exit_code, 0) << done.error;
  EXPECT_THAT(calls(), ::testing::MatchesRegex(
                           "setup curl iproute2 python3\ncmake --preset tsan\ncmake --build "
                           "--preset tsan\nctest --preset tsan --parallel [0-9]+ -R x -j8\n"));
  EXPECT_THAT(done.out, ::testing::Not(HasSubstr("skipped:")));

  write_program("path/ctest", std::string(kHelpOfCtest) + "mkdir -p build/Testing/Temporary\n" +
                                  "cp log build/Testing/Temporary/LastTest.log\nexit 8\n");
  done = run("tools/run_tests", {});
  EXPECT_EQ(done.exit_code, 8);
  EXPECT_EQ(done.out, kSkipped);
}

TEST_F(Scripts, RunTestsGoesOnWithoutWhatOnlySomeTestsNeed) {
  write_program("tools/setup", "[ $# = 0 ] || exit 1\n");
  const auto done = run("tools/run_tests", {});
  EXPECT_EQ(done.exit_code, 0) << done.error;
  EXPECT_THAT(done.out, HasSubstr("tests that need what is missing will be skipped"));
  EXPECT_THAT(calls(), HasSubstr("setup \ncmake --preset release\n"));
}

}  // namespace
}  // namespace dlaunch::testing
