#include "launcher/options/completion.h"

#include <cctype>
#include <cstdio>
#include <sstream>
#include <string_view>

#include "runtime/base/exit_codes.h"

namespace dlaunch {
namespace {

// The words of the commands, with blanks between.
std::string commands() {
  std::string words;
  for (const char* const command : kCommands)
    words += std::string(words.empty() ? "" : " ") + command;
  return words;
}

// The words that may stand for the value: "core numa none" of "core|numa|none". What is in capitals
// is no word but the name of something.
std::string choices(const OptionHelp& option) {
  std::istringstream parts(option.value);
  std::string words;
  for (std::string part; std::getline(parts, part, '|');) {
    if (part.empty() || std::islower(static_cast<unsigned char>(part.front())) == 0) continue;
    words += (words.empty() ? "" : " ") + part;
  }
  return words;
}

// Options of the same value together: "--log-dir|--log_dir", as a case of bash has them.
std::string pattern(const OptionHelp& option) {
  std::string text;
  for (const std::string& name : option.names) text += (text.empty() ? "" : "|") + name;
  return text;
}

std::string without(std::string text, std::string_view unwanted) {
  std::erase_if(text, [&](char c) { return unwanted.find(c) != std::string_view::npos; });
  return text;
}

}  // namespace

std::string bash_completion(const std::vector<OptionHelp>& options) {
  std::string shown;
  std::string with_value;
  std::string values;
  for (const OptionHelp& option : options) {
    shown += (shown.empty() ? "" : " ") + option.names.front();
    if (option.value.empty()) continue;
    with_value += (with_value.empty() ? "" : "|") + pattern(option);
    std::string words = "COMPREPLY=($(compgen -W '" + choices(option) + "' -- \"$current\"))";
    if (option.value == "DIR") words = "COMPREPLY=($(compgen -d -- \"$current\"))";
    if (option.value == "FILE") words = "COMPREPLY=($(compgen -f -- \"$current\"))";
    values += "    " + pattern(option) + ") " + words + "; return ;;\n";
  }
  return "# bash completion for dlaunch, made by: dlaunch completion bash\n"
         "_dlaunch() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} i\n"
         "  COMPREPLY=()\n"
         "  # What follows the program is the program's to complete.\n"
         "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
         "    case ${COMP_WORDS[i]} in\n"
         "    completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$current\")); return ;;\n"
         "    status) COMPREPLY=($(compgen -W '--no-stacks' -- \"$current\")); return ;;\n"
         "    doctor|token) return ;;\n"
         "    " +
         with_value +
         ") ((++i)); [[ ${COMP_WORDS[i]} == = ]] && ((++i)) ;;\n"
         "    -?*) ;;\n"
         "    *) declare -F _command_offset >/dev/null && _command_offset $i; return ;;\n"
         "    esac\n"
         "  done\n"
         "  [[ $current == = ]] && current=\n"
         "  [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD-2]}\n"
         "  case $before in\n" +
         values +
         "  esac\n"
         "  if [[ $current == -* ]]; then\n"
         "    COMPREPLY=($(compgen -W '" +
         shown +
         "' -- \"$current\"))\n"
         "  else\n"
         "    # All programs are too many to choose from: these come with their first letter.\n"
         "    [[ -z $current ]] || COMPREPLY=($(compgen -c -- \"$current\"))\n"
         "    COMPREPLY+=($(compgen -f -- \"$current\"))\n"
         "    ((COMP_CWORD > 1)) || COMPREPLY+=($(compgen -W '" +
         commands() +
         "' -- \"$current\"))\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F _dlaunch dlaunch\n";
}

std::string zsh_completion(const std::vector<OptionHelp>& options) {
  std::string text =
      "#compdef dlaunch\n# zsh completion for dlaunch, made by: dlaunch completion zsh\n"
      "_arguments -S \\\n";
  for (const OptionHelp& option : options) {
    text += "  '" + option.names.front() + (option.value.empty() ? "" : "=") + "[" +
            without(option.help, "[]:'") + "]";
    if (option.value == "DIR") {
      text += ":folder:_files -/";
    } else if (option.value == "FILE") {
      text += ":file:_files";
    } else if (!option.value.empty()) {
      text += ":" + option.value + ":(" + choices(option) + ")";
    }
    text += "' \\\n";
  }
  return text + "  '(-)1:program:{_alternative \"commands:command:(" + commands() +
         ")\" \"programs:program:_command_names -e\" \"files:file:_files\"}' \\\n"
         "  '*::arguments:_normal'\n";
}

std::string fish_completion(const std::vector<OptionHelp>& options) {
  std::string text = "# fish completion for dlaunch, made by: dlaunch completion fish\n";
  for (const OptionHelp& option : options) {
    text += "complete -c dlaunch -l " + option.names.front().substr(2);
    if (option.value == "DIR" || option.value == "FILE") {
      text += " -r -F";
    } else if (!option.value.empty()) {
      text += " -x -a '" + choices(option) + "'";
    }
    text += " -d '" + without(option.help, "'") + "'\n";
  }
  return text + "complete -c dlaunch -n '__fish_is_first_arg' -a '" + commands() +
         "'\ncomplete -c dlaunch -a '(__fish_complete_subcommand)'\n";
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
  const std::vector<OptionHelp> options = option_table();
  std::string script;
  if (shell == "bash") script = bash_completion(options);
  if (shell == "zsh") script = zsh_completion(options);
  if (shell == "fish") script = fish_completion(options);
  if (script.empty()) {
    std::fputs("dlaunch: completion of which shell? bash, zsh or fish\n", stderr);
    return kLauncherFailure;
  }
  std::fputs(script.c_str(), stdout);
  return kExitOk;
}

}  // namespace dlaunch
