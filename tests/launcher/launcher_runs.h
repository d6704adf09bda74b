// What the launcher's tests share: command lines for dlaunch and its test rank, and the search for
// processes that should not be there any more.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/deadline.h"
#include "tests/support/sanitized.h"
#include "tests/support/soon.h"
#include "tests/support/subprocess.h"

namespace dlaunch::testing {

/// ThreadSanitizer turns vfork into fork, after which dlaunch goes on before its child has run the
/// program, and does not hear whether it could.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kVforkIsFork = true;
#else
inline constexpr bool kVforkIsFork = false;
#endif
inline constexpr const char* kVforkIsForkText = "ThreadSanitizer turns vfork into fork";

using Strings = std::vector<std::string>;

/// dlaunch OPTIONS -- test_rank ACTIONS
Command ranks_that(const Strings& actions, const Strings& options);
/// dlaunch OPTIONS -- PROGRAM ACTIONS, for another program of the tests.
Command ranks_of(const std::string& program, const Strings& actions, const Strings& options);
/// dlaunch --nproc RANKS -- test_rank ACTIONS
Command ranks_that(const Strings& actions, int ranks);

/// dlaunch OPTIONS -- /bin/sh -c SCRIPT, in which "$@" is test_rank ACTIONS.
Command ranks_in_a_script(const std::string& script, const Strings& actions,
                          const Strings& options);
/// A script that does no more than that, and dies of signals without passing them on.
inline constexpr const char* kOnlyTheProgram = "\"$@\"; :";

/// The same with address space for no more than so many threads, of those that dlaunch starts in
/// turn. Not under a sanitizer.
Command with_room_for_threads(int threads, const Command& command);

/// A word for a test rank's command line by which it and its descendants can be found.
std::string fresh_mark();
/// The processes that have `mark` in their command line and are no zombies.
std::vector<pid_t> processes_with(std::string_view mark);
/// True once there is none; false if the deadline passed.
bool all_gone(std::string_view mark, Deadline deadline);
/// True once there are at least `count`.
bool all_there(std::string_view mark, std::size_t count, Deadline deadline);

/// True once the process has ended and waits to be reaped; false if the deadline passed.
bool becomes_zombie(pid_t pid, Deadline deadline);

/// The children of a process.
std::vector<pid_t> children_of(pid_t pid);

}  // namespace dlaunch::testing
