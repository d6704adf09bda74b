#include "launcher/options/completion.h"

#include <cctype>
#include <cstdio>
#include <sstream>
#include <string_view>

#include "launcher/status/status_command.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/run_program.h"

namespace dlaunch {
namespace {

constexpr const char* kShells = "bash zsh fish";  // for which there is a script

// The words of the commands, with blanks between.
std::string commands() {
  std::string words;
  for (const char* const command : kCommands)
    words += std::string(words.empty() ? "" : " ") + command;
  return words;
}

// The words that may stand for the value: "core numa none" of "core|numa|none". What is in capitals
// is no word but the name of something.
std::string choices(const OptionEntry& option) {
  std::istringstream parts(option.value);
  std::string words;
  for (std::string part; std::getline(parts, part, '|');) {
    if (part.empty() || std::islower(static_cast<unsigned char>(part.front())) == 0) continue;
    words += (words.empty() ? "" : " ") + part;
  }
  return words;
}

// Options of the same value together: "--log-dir|--log_dir", as a case of bash has them.
std::string pattern(const OptionEntry& option) {
  std::string text;
  for (const std::string& name : option.names) text += (text.empty() ? "" : "|") + name;
  return text;
}

std::string without(std::string text, std::string_view unwanted) {
  std::erase_if(text, [&](char c) { return unwanted.find(c) != std::string_view::npos; });
  return text;
}

}  // namespace

std::string bash_completion(const std::vector<OptionEntry>& options) {
  std::string shown;
  std::string with_value;
  std::string values;
  for (const OptionEntry& option : options) {
    if (option.listed) shown += (shown.empty() ? "" : " ") + option.names.front();
    if (option.value.empty()) continue;
    with_value += (with_value.empty() ? "" : "|") + pattern(option);
    std::string what = "-W '" + choices(option) + "'";
    if (option.value == "DIR") what = "-d";
    if (option.value == "FILE") what = "-f";
    values += "    " + pattern(option) + ") _dlaunch_offer " + what + "; return ;;\n";
  }
  return std::string() +
         "# bash completion for dlaunch, made by: dlaunch completion bash\n"
         "# A line for each word, which may have blanks in it.\n"
         "_dlaunch_offer() { mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen \"$@\" -- "
         "\"$current\"); }\n"
         "_dlaunch() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} i\n"
         "  COMPREPLY=()\n"
         "  # What follows the program is the program's to complete.\n"
         "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
         "    case ${COMP_WORDS[i]} in\n"
         "    completion) _dlaunch_offer -W '" +
         kShells +
         "'; return ;;\n"
         "    status) _dlaunch_offer -W '--no-stacks'; return ;;\n"
         "    doctor|token) return ;;\n"
         "    " +
         with_value +
         ") ((++i)); [[ ${COMP_WORDS[i]} == = ]] && ((++i)) ;;\n"
         "    --) ((++i)); break ;;\n"
         "    -?*) ;;\n"
         "    *) break ;;\n"
         "    esac\n"
         "  done\n"
         "  if ((i < COMP_CWORD)); then\n"
         "    declare -F _command_offset >/dev/null && _command_offset $i\n"
         "    return\n"
         "  fi\n"
         "  [[ $current == = ]] && current=\n"
         "  [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD-2]}\n"
         "  case $before in\n" +
         values +
         "  esac\n"
         "  if [[ $current == -* && $before != -- ]]; then\n"
         "    _dlaunch_offer -W '" +
         shown +
         "'\n"
         "  else\n"
         "    # All programs are too many to choose from: these come with their first letter.\n"
         "    [[ -z $current ]] || _dlaunch_offer -c\n"
         "    _dlaunch_offer -f\n"
         "    ((COMP_CWORD > 1)) || _dlaunch_offer -W '" +
         commands() +
         "'\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F _dlaunch dlaunch\n";
}

std::string zsh_completion(const std::vector<OptionEntry>& options) {
  std::string text =
      std::string() +
      "#compdef dlaunch\n# zsh completion for dlaunch, made by: dlaunch completion zsh\n"
      "if ((CURRENT > 2)); then\n"
      "  case $words[2] in\n"
      "  completion) compadd " +
      kShells +
      "; return ;;\n"
      "  status) _arguments '--no-stacks[" +
      kNoStacksHelp +
      "]' ':job:'; return ;;\n"
      "  doctor|token) return ;;\n"
      "  esac\n"
      "fi\n"
      "_arguments -S \\\n";
  for (const OptionEntry& option : options) {
    std::string what = option.listed ? "[" + without(option.help, "[]:'") + "]" : "";
    if (option.value == "DIR") {
      what += ":folder:_files -/";
    } else if (option.value == "FILE") {
      what += ":file:_files";
    } else if (!option.value.empty()) {
      what += ":" + without(option.value, "[]:'") + ":(" + choices(option) + ")";
    }
    for (const std::string& name : option.names) {
      // All spellings are known, and one of them is offered.
      const bool offered = option.listed && name == option.names.front();
      const char* const takes = option.value.empty() ? "" : name.starts_with("--") ? "=" : "+";
      text.append(offered ? "  '" : "  '!")
          .append(name)
          .append(takes)
          .append(what)
          .append("' \\\n");
    }
  }
  return text + "  '(-)1:program:{_alternative \"commands:command:(" + commands() +
         ")\" \"programs:program:_command_names -e\" \"files:file:_files\"}' \\\n"
         "  '*::arguments:_normal'\n";
}

std::string fish_completion(const std::vector<OptionEntry>& options) {
  std::string offered;
  std::string with_value;
  for (const OptionEntry& option : options) {
    for (const std::string& name : option.names) {
      if (!option.value.empty()) with_value += " " + name;
    }
    if (!option.listed) continue;
    offered += "complete -c dlaunch -n __dlaunch_options -l " + option.names.front().substr(2);
    if (option.value == "DIR" || option.value == "FILE") {
      offered += " -r -F";
    } else if (!option.value.empty()) {
      offered += " -x -a '" + choices(option) + "'";
    }
    offered += " -d '" + without(option.help, "'") + "'\n";
  }
  return "# fish completion for dlaunch, made by: dlaunch completion fish\n"
         "# Whether no program has been named yet.\n"
         "function __dlaunch_options\n"
         "  set -l words (commandline -opc)\n"
         "  set -e words[1]\n"
         "  while set -q words[1]\n"
         "    test \"$words[1]\" = --; and return 1\n"
         "    switch $words[1]\n"
         "      case" +
         with_value +
         "\n"
         "        set -e words[1]\n"
         "      case '-*'\n"
         "      case '*'\n"
         "        return 1\n"
         "    end\n"
         "    set -q words[1]; and set -e words[1]\n"
         "  end\n"
         "end\n"
         "function __dlaunch_command\n"
         "  set -l words (commandline -opc)\n"
         "  set -q words[2]; and contains -- $words[2] $argv\n"
         "end\n" +
         offered + "complete -c dlaunch -n '__fish_is_first_arg' -a '" + commands() +
         "'\n"
         "complete -c dlaunch -f -n '__dlaunch_command completion' -a '" +
         kShells +
         "'\n"
         "complete -c dlaunch -f -n '__dlaunch_command status' -l no-stacks -d '" +
         kNoStacksHelp +
         "'\n"
         "complete -c dlaunch -f -n '__dlaunch_command doctor token'\n"
         "complete -c dlaunch -n 'not __dlaunch_command " +
         commands() + "' -a '(__fish_complete_subcommand)'\n";
}

int completion_command(int argc, const char* const* argv) {
  if (asks_for_help(argc, argv)) {
    std::fputs(
        "Prints the script by which a shell completes dlaunch's options.\n"
        "Usage: dlaunch completion bash|zsh|fish\n",
        stdout);
    return kExitOk;
  }
  const std::string_view shell = argc == 2 ? argv[1] : "";
  const std::vector<OptionEntry> options = option_table();
  std::string script;
  if (shell == "bash") script = bash_completion(options);
  if (shell == "zsh") script = zsh_completion(options);
  if (shell == "fish") script = fish_completion(options);
  if (script.empty()) {
    std::fputs("dlaunch: completion of which shell? bash, zsh or fish\n", stderr);
    return kLauncherFailure;
  }
  print_long(script);
  return kExitOk;
}

}  // namespace dlaunch
