#include "launcher/options/command_line.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "launcher/options/option_group.h"
#include "launcher/options/torchrun_options.h"
#include "launcher/options/values.h"
#include "launcher/ranks/gpus.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/nearest_name.h"
#include "runtime/base/option_errors.h"
#include "runtime/base/usable_cores.h"

namespace dlaunch {
namespace {

constexpr int kMostRanks = 4096;

constexpr const char* kFooter =
    "stdout is the ranks' own, untouched. stderr has '[rank N] ' before each line.\n"
    "The first rank that fails ends the job and gives the exit code, 128 + signal if\n"
    "it was killed; 124: --timeout passed, 125: dlaunch itself failed, 126 and 127:\n"
    "the program cannot be run or does not exist.\n"
    "torchrun's other options and its variables (PET_...) are taken too: man dlaunch.\n";

// One line for each option: "  --name VALUE  what it does".
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: dlaunch --nproc N [options] [--] PROGRAM [ARGS...]\n"
           "       dlaunch doctor              check this machine\n"
           "       dlaunch status [JOB]        running jobs, or what one is doing\n"
           "       dlaunch token > FILE        a new secret for a job of several nodes\n"
           "       dlaunch completion SHELL    for bash, zsh or fish\n";
  }
  std::string make_group(std::string heading, bool positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string text = heading + ":\n";
    for (const CLI::Option* option : options) text += make_option(option, positional);
    return text;
  }
  std::string make_option_name(const CLI::Option* option, bool) const override {
    std::string name = "--" + option->get_lnames().front();
    for (const std::string& letter : option->get_snames()) name.insert(0, "-" + letter + ", ");
    return name;
  }
  // Without the variable that gives a value, which would not fit into the line.
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    const std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    return CLI::detail::find_and_replace(text, "\n\n", "\n");
  }
};

int parse_ranks(const std::string& text) {
  const auto gpus = static_cast<int>(visible_gpus().size());
  if (text == "cpu" || (text == "auto" && gpus == 0)) return cores_with_time();
  if (text == "gpu" && gpus == 0) {
    throw BadValue("there is no GPU (neither /dev/nvidia0 nor CUDA_VISIBLE_DEVICES)");
  }
  if (text == "gpu" || text == "auto") return gpus;
  const auto ranks = parse_integer(text, 1, kMostRanks);
  if (!ranks) {
    throw BadValue("'" + text + "' is not a number of ranks from 1 to " +
                   std::to_string(kMostRanks) + ", 'auto', 'gpu' or 'cpu'");
  }
  return *ranks;
}

void add_job_options(CLI::App& app, JobOptions& options) {
  const OptionGroup group(app, "Job");
  group.add("--nproc,--nproc-per-node", "N|auto|gpu|cpu", "Number of ranks on this node",
            [&](const std::string& text) { options.ranks = parse_ranks(text); });
  group.add_flag("--dry-run", "Print what would be started, and start nothing",
                 [&] { options.dry_run = true; });
}

void set_up(CLI::App& app, JobOptions& options) {
  app.option_defaults()->disable_flag_override();
  add_job_options(app, options);
  add_output_options(app, options.output);
  add_supervision_options(app, options.supervision);
  add_node_options(app, options.nodes);
  add_placement_options(app, options.placement);
  add_torchrun_options(app, options.torchrun);
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(27);
  app.footer(kFooter);
  app.set_version_flag("--version", "dlaunch " DLAUNCH_VERSION, "Show the version and exit")
      ->group("Other");
  app.set_help_flag("-h,--help", "Show this and exit")->group("Other");
  app.prefix_command();
}

// What people know from torchrun and mpirun, and dlaunch says otherwise.
std::string_view hint_for(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  constexpr std::pair<std::string_view, std::string_view> kHints[] = {
      {"--run-path", "name the interpreter instead: python3 SCRIPT"},
      {"--logs-specs", "leave it out; --log-dir DIR keeps all output"},
      {"--virtual-local-rank", "--gpus-per-rank 1 gives each rank a GPU of its own, as device 0"},
      {"--print-completion", "dlaunch completion SHELL prints the script"},
      {"--use-env", "leave it out, ranks learn everything from their environment"},
      {"-n", "the number of ranks is --nproc"},
      {"-np", "the number of ranks is --nproc"},
      {"--np", "the number of ranks is --nproc"},
      {"-ppn", "the number of ranks of a node is --nproc"},
      {"-N", "the number of ranks of a node is --nproc"},
      {"-x", "leave it out, ranks inherit dlaunch's environment"},
      {"-genv", "leave it out, ranks inherit dlaunch's environment"},
      {"-env", "leave it out, ranks inherit dlaunch's environment"},
      {"-H", "dlaunch is started on each of the nodes; see --nnodes"},
      {"--host", "dlaunch is started on each of the nodes; see --nnodes"},
      {"--hosts", "dlaunch is started on each of the nodes; see --nnodes"},
      {"-hostfile", "dlaunch is started on each of the nodes; see --nnodes"},
      {"--hostfile", "dlaunch is started on each of the nodes; see --nnodes"},
      {"--machinefile", "dlaunch is started on each of the nodes; see --nnodes"},
      {"--oversubscribe", "leave it out, there may be more ranks than cores"},
      {"--allow-run-as-root", "leave it out, root may start ranks"},
      {"--bind-to", "where ranks run is --bind core, numa or none"},
      {"-bind-to", "where ranks run is --bind core, numa or none"},
      {"--map-by", "where ranks run is --bind core, numa or none"},
      {"--report-bindings", "--dry-run shows where ranks would run"},
      {"--mca", "leave it out, there are no parameters of MPI's components"},
      {"--tag-output", "ranks are put before their lines by --output prefix"},
      {"-l", "ranks are put before their lines by --output prefix"},
      {"-V", "the version is --version"},
      {"-v", "the version is --version"},
  };
  for (const auto& [option, hint] : kHints) {
    if (option == name) return hint;
  }
  return "";
}

std::string refused_option(const CLI::App& app, const std::string& given) {
  const std::string name = given.substr(0, given.find('='));
  if (const auto hint = hint_for(name); !hint.empty()) {
    return "unknown option " + name + ": " + std::string(hint);
  }
  return unknown_option(app, name) + " (the program's own options go after its name)";
}

EarlyExit refuse(const std::string& why) {
  return {kLauncherFailure, "dlaunch: " + with_help(why, "dlaunch") + "\n"};
}

// What options say together.
std::variant<JobOptions, EarlyExit> combine(JobOptions options) {
  const TorchrunOptions& torchrun = options.torchrun;
  if (torchrun.module && torchrun.no_python) {
    return refuse("--module and --no-python exclude each other");
  }
  if (torchrun.local_ranks && options.output.only) {
    return refuse("--only and --local-ranks-filter say the same in two ways: take one of them");
  }
  if (torchrun.module) options.command = module_command(options.command);
  if (!options.nodes.join_timeout) options.nodes.join_timeout = torchrun.join_timeout;
  options.nodes.last_call = torchrun.last_call;
  return options;
}

// A program's name that may be meant for a command of dlaunch: "; did you mean dlaunch doctor?"
std::string perhaps_command(const std::string& program) {
  const std::vector<std::string> commands(std::begin(kCommands), std::end(kCommands));
  std::string nearest = nearest_name(program, commands);
  if (program == "help" || program == "version") nearest = "--" + program;
  return nearest.empty() ? "" : "; did you mean dlaunch " + nearest + "?";
}

// The first option before the program that is given as "--report=", or nothing. The library would
// take the next word, which may be the program, for its value.
std::string option_without_value(const CLI::App& app, int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.size() < 2 || word.front() != '-' || word == "--") return {};
    const auto equals = word.find('=');
    std::string name(word.substr(0, equals));
    const CLI::Option* const option = app.get_option_no_throw(name);
    if (option == nullptr || option->get_type_size() == 0) continue;
    if (equals == std::string_view::npos) ++i;
    if (equals + 1 == word.size()) return name;
  }
  return {};
}

std::variant<JobOptions, EarlyExit> give_gpus(JobOptions options) {
  PlacementOptions& placement = options.placement;
  if (placement.gpus_per_rank == 0) return options;
  placement.gpus = visible_gpus();
  const std::size_t needed =
      static_cast<std::size_t>(placement.gpus_per_rank) * static_cast<std::size_t>(options.ranks);
  if (needed <= placement.gpus.size()) return options;
  return refuse("--gpus-per-rank: the ranks need " + std::to_string(needed) + " GPUs, there are " +
                std::to_string(placement.gpus.size()));
}

}  // namespace

std::vector<OptionEntry> option_table() {
  JobOptions options;
  CLI::App app("", "dlaunch");
  set_up(app, options);
  std::vector<OptionEntry> table;
  for (const CLI::Option* option : app.get_options()) {
    OptionEntry entry{.names = {},
                      .value = option->get_type_size() == 0 ? "" : option->get_type_name(),
                      .help = option->get_description(),
                      .listed = !option->get_group().empty()};
    for (const std::string& name : option->get_lnames()) entry.names.push_back("--" + name);
    for (const std::string& letter : option->get_snames()) entry.names.push_back("-" + letter);
    table.push_back(std::move(entry));
  }
  return table;
}

std::variant<JobOptions, EarlyExit> parse_command_line(int argc, const char* const* argv) {
  JobOptions options;
  CLI::App app("", "dlaunch");
  set_up(app, options);
  if (const std::string name = option_without_value(app, argc, argv); !name.empty()) {
    return refuse(name + "= has no value behind it");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return EarlyExit{kExitOk, app.help()};
  } catch (const CLI::CallForVersion& version) {
    return EarlyExit{kExitOk, std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    return refuse(in_words(app, error));
  }
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--") {
    options.command.erase(options.command.begin());
  } else if (!options.command.empty() && options.command.front().starts_with("-")) {
    return refuse(refused_option(app, options.command.front()));
  }
  if (options.command.empty() && options.ranks == 0) {
    return refuse("which program, on how many ranks? --nproc N PROGRAM");
  }
  if (options.command.empty()) return refuse("no program is given");
  return combine(std::move(options));
}

std::variant<JobOptions, EarlyExit> settle_ranks(JobOptions options,
                                                 const std::optional<std::string>& by_manager,
                                                 bool alone) {
  try {
    if (options.ranks == 0 && by_manager) options.ranks = parse_ranks(*by_manager);
  } catch (const BadValue& error) {
    return refuse(std::string("number of ranks by the environment: ") + error.what());
  }
  if (options.ranks == 0) {
    const bool behind = std::ranges::count(options.command, "--nproc") > 0;
    return refuse("how many ranks? --nproc N" +
                  (behind ? ", before the program: what comes after it is its own"
                          : perhaps_command(options.command.front())));
  }
  if (options.torchrun.local_ranks && !alone) {
    return refuse(
        "--local-ranks-filter is for one node; on several --only chooses ranks of the job");
  }
  if (options.torchrun.local_ranks) options.output.only = options.torchrun.local_ranks;
  if (const auto why = unknown_rank(options.output, options.ranks); alone && !why.empty()) {
    return refuse(why);
  }
  return give_gpus(std::move(options));
}

bool asks_for_help(int argc, const char* const* argv) {
  const std::string_view first = argc == 2 ? argv[1] : "";
  return first == "--help" || first == "-h";
}

}  // namespace dlaunch
