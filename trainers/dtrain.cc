// dtrain CONFIG.json: trains a network on images, or validates one, data-parallel over the ranks
// that dlaunch started, or alone.
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <thread>

#include <spdlog/fmt/fmt.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "nn/cpu/cpu_backend.h"
#include "nn/data/dataset.h"
#include "nn/models/layer_table.h"
#include "runtime/base/activity.h"
#include "runtime/base/deadline.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/job_environment.h"
#include "runtime/base/json_reader.h"
#include "runtime/base/option_errors.h"
#include "runtime/base/option_help.h"
#include "runtime/base/run_program.h"
#include "runtime/base/standard_descriptors.h"
#include "runtime/cuda/environment.h"
#include "runtime/parallel/long_work.h"
#include "trainers/config/config.h"
#include "trainers/config/config_agreement.h"
#include "trainers/device/training_device.h"
#include "trainers/training/datasets.h"
#include "trainers/training/failures.h"
#include "trainers/training/stop_signals.h"
#include "trainers/training/trainer.h"
#include "trainers/training/trainer_parts.h"
#include "trainers/validation/evaluation.h"

namespace dlaunch {
namespace {

struct Arguments {
  std::string config;
  std::vector<ConfigOverride> overrides;
  std::optional<std::string> validate;  // a file of weights; without: train
  bool dry_run = false;
};

/// How a part of the program ended.
struct Outcome {
  int code = kExitOk;
  std::string line;           // for the user; empty if all is well
  bool on_all_ranks = false;  // every rank has met the same
  bool by_another = false;    // a rank has given up, and has told this one
};

Outcome attempt(const std::function<void()>& part) {
  try {
    part();
    return {};
  } catch (const ConfigError& error) {
    return {kExitUsage, error.what()};
  } catch (const nn::DataError& error) {
    return {kExitBadData, error.what()};
  } catch (const StatusError& error) {
    const StatusCode code = error.status().code();
    return {.code = code == StatusCode::kInvalidArgument ? kExitUsage : kExitCommunication,
            .line = error.what(),
            .by_another = code == StatusCode::kAborted};
  } catch (const Interruption& stop) {
    return {kExitSignalled + stop.signal(), stop.what(), true};
  } catch (const Divergence& error) {
    return {kExitDiverged, error.what(), true};
  } catch (const UnusableCheckpoint& error) {
    return {kExitBadData, error.what(), true};
  } catch (const DifferentData& error) {
    return {kExitBadData, error.what(), true};
  } catch (const TrainingFailure& error) {
    return {kExitFailure, error.what(), true};
  } catch (const std::bad_alloc&) {
    return {kExitFailure, "out of memory"};
  } catch (const std::exception& error) {
    return {kExitFailure, error.what()};
  }
}

/// What a rank does by itself, reading files above all: the others wait, however long it takes.
Outcome attempt_alone(Communicator& world, const std::function<void()>& part) {
  std::promise<void> ended;
  // The part stays on this thread, which has chosen the device that it works on.
  std::future<Status> meeting = std::async(
      std::launch::async, [&world, work = ended.get_future()] { return await_work(world, work); });
  Outcome outcome = attempt(part);
  ended.set_value();
  (void)meeting.get();  // what has failed in it fails in agree() too
  return outcome;
}

void print_error(const std::string& line) {
  std::cerr << fmt::format("dtrain: {}\n", line) << std::flush;
}

Screen make_screen() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return {std::cout, ::isatty(STDOUT_FILENO) == 1, known ? size.ws_col : std::size_t{80}};
}

/// Throws ConfigError for what this kind of device does not do, on whichever machine. (Whether a
/// CPU multiplies in bf16 only the one that is to train can tell.)
void check_kind_of_device(const TrainConfig& config, const nn::Backend& cpu) {
  if (config.device == DeviceKind::kCuda) return refuse_what_gpus_do_not_do(config);
  if (config.compute_type == ComputeType::kF16) (void)compute_type_of(config, cpu);
  check_loss_scaling(config, cpu);
}

void print_plan(const TrainConfig& config, std::size_t ranks) {
  const DataShape data = data_shape(config.data);
  const auto backend = nn::make_cpu_backend();
  check_kind_of_device(config, *backend);
  (void)config.samples_per_step(ranks);
  nn::Generator generator(config.seed);
  (void)training_transform(config.data, data.image);
  const auto model = make_network(config, data, DType::kF32, *backend, generator, nullptr);
  std::cout << config.resolved.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
            << "\n\n"
            << format_layer_table(*model, image_batch(1, data.image));
}

/// On one rank of a job: the others would print the same.
int dry_run(const Arguments& arguments) {
  const Outcome outcome = attempt([&] {
    const JobEnvironment job = read_job_environment().value_or_throw();
    if (job.rank == 0)
      print_plan(load_train_config(arguments.config, arguments.overrides),
                 static_cast<std::size_t>(job.world_size));
  });
  if (outcome.code != kExitOk) print_error(outcome.line);
  return outcome.code;
}

/// By the ranks that leave it to another one to say why: that one is to end first, so that dlaunch
/// counts its end as the failure and shows its last words. Then dlaunch ends these, by a SIGTERM.
void let_another_end_first() {
  constexpr std::chrono::milliseconds kLook{5};
  const auto limit = Deadline::after(std::chrono::seconds(3));  // where nobody ends them
  while (stop_signal() != SIGTERM && !limit.expired()) std::this_thread::sleep_for(kLook);
}

/// Collective: the exit code of the lowest rank that failed. That rank alone says why, before any
/// rank goes on: the same wrong file would otherwise be reported by every rank.
int agree(Communicator& world, const Outcome& outcome) {
  std::vector<std::int32_t> codes(static_cast<std::size_t>(world.size()));
  const std::array<std::int32_t, 1> own{outcome.code};
  if (const Status status = world.all_gather(own, codes); !status.ok()) {
    print_error(outcome.code != kExitOk ? outcome.line : status.within("start").to_string());
    return outcome.code != kExitOk ? outcome.code : kExitCommunication;
  }
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    if (codes[rank] == kExitOk) continue;
    if (rank == static_cast<std::size_t>(world.rank())) {
      print_error(outcome.line);
    } else {
      let_another_end_first();
    }
    return codes[rank];
  }
  return kExitOk;
}

/// The failure of a rank in the middle of training.
int give_up(Communicator& world, const Outcome& outcome) {
  if (outcome.on_all_ranks) {
    const bool speaks = world.rank() == 0;
    if (speaks) print_error(outcome.line);
    // Until it has said that, and before it written the trace: the end of another would end it.
    (void)world.barrier();
    if (!speaks) let_another_end_first();
  } else {
    print_error(fmt::format("rank {}: {}", world.rank(), outcome.line));
    world.abort(
        Status(StatusCode::kAborted, fmt::format("rank {}: {}", world.rank(), outcome.line)));
    if (outcome.by_another) let_another_end_first();
  }
  return outcome.code;
}

Machine this_machine() {
  return read_machine(read_job_environment().value_or_throw());
}

/// A job whose configuration or data are wrong is not ready: restarted, it would fail again.
std::unique_ptr<Communicator> connect() {
  return connect_world(read_job_environment().value_or_throw(), make_logger("comm"),
                       ReadyWhen::kAnnounced)
      .value_or_throw();
}

/// nullptr without dlaunch.
std::shared_ptr<Activity> this_activity() {
  const JobEnvironment job = read_job_environment().value_or_throw();
  return Activity::open(job.activity, job.local_rank);
}

void announce_ready(const std::shared_ptr<Activity>& activity) {
  if (activity != nullptr) activity->set_ready();
}

/// Until here a signal ends the process at once: there is nothing to be kept. Where another rank
/// has failed there is a trace at most, which is written as soon as the loss of that rank is
/// noticed.
Outcome train(Trainer& trainer, const TrainConfig& config,
              const std::shared_ptr<Activity>& activity) {
  catch_stop_signals(config.trace.file.empty() ? activity : nullptr);
  trainer.stop_on(stop_signal);
  trainer.when_ready([&] { announce_ready(activity); });
  Outcome outcome = attempt([&] { (void)trainer.run(); });
  trainer.end_progress();
  const bool is_failure = outcome.code != kExitOk && outcome.code < kExitSignalled;
  if (is_failure) (void)attempt([&] { trainer.note_failure(outcome.line, outcome.code); });
  return outcome;
}

/// Trains, or validates only.
int work(const Arguments& arguments) {
  std::unique_ptr<Communicator> world;
  if (const Outcome outcome = attempt([&] { world = connect(); }); outcome.code != kExitOk) {
    print_error(outcome.line);
    return outcome.code;
  }

  const Screen screen = make_screen();
  TrainConfig config;
  std::optional<TrainingDevice> device;
  std::optional<Trainer> trainer;
  std::optional<Evaluation> evaluation;  // instead
  // Each is done by all ranks or by none.
  const std::function<Outcome()> preparations[] = {
      [&] {
        return attempt_alone(*world, [&] {
          config = load_train_config(arguments.config, arguments.overrides);
          const Machine machine = this_machine();
          use_threads(machine);
          device.emplace(config, machine);
        });
      },
      [&] { return attempt([&] { check_same_configuration(*world, config); }); },
      [&] { return attempt([&] { device->connect(config, *world); }); },
      [&] {
        return attempt_alone(*world, [&] {
          if (arguments.validate)
            evaluation.emplace(config, device->place(), screen, this_machine(),
                               *arguments.validate);
          else
            trainer.emplace(config, device->place(), screen, this_machine());
        });
      },
  };
  for (const auto& preparation : preparations)
    if (const int code = agree(*world, preparation()); code != kExitOk) return code;

  const std::shared_ptr<Activity> activity = this_activity();
  const Outcome outcome =
      trainer ? train(*trainer, config, activity)
              : attempt([&] { (void)evaluation->run([&] { announce_ready(activity); }); });
  if (outcome.code != kExitOk) return give_up(device->place().world, outcome);
  return kExitOk;
}

std::string what_is_wrong(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = in_words(app, error);
  // Here they are no options of their own.
  if (text.starts_with("unknown option") && !text.ends_with('?')) {
    text +=
        "; dlaunch's options go before dtrain, values of the configuration are changed with "
        "--set key.path=value";
  }
  return text;
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Trains an image classifier as described by a JSON configuration. Start it with dlaunch to "
      "train on several ranks. docs/training.md lists every key; --dry-run prints them with their "
      "values.",
      "dtrain");
  app.formatter(std::make_shared<OptionHelp>());
  app.set_version_flag("--version", "dtrain " DLAUNCH_VERSION, "Show the version and exit");
  app.add_option("CONFIG.json", arguments.config, "the configuration (JSON, comments allowed)")
      ->required();
  app.add_option_function<std::vector<std::string>>(
         "--set",
         [&](const std::vector<std::string>& assignments) {
           for (const std::string& text : assignments) arguments.overrides.emplace_back(text);
         },
         "override one value; may be repeated")
      ->type_name("key.path=value")
      ->allow_extra_args(false);
  const auto overriding = [&](const char* option, const std::string& key, const char* help) {
    return app.add_option_function<std::string>(
        option,
        [&, key, option](const std::string& value) {
          std::string quoted;
          try {
            quoted = nlohmann::json(value).dump();
          } catch (const nlohmann::json::exception&) {
            throw CLI::ValidationError(option, "its value is not UTF-8");
          }
          arguments.overrides.emplace_back(key + "=" + quoted, fmt::format("{} {}", option, value));
        },
        help);
  };
  overriding(
      "--resume", "checkpoint.resume",
      "where to resume: auto (the newest checkpoint in output.directory, if any), the path of a "
      "checkpoint, or none. Default: auto if dlaunch restarted the job, else none")
      ->type_name("auto|PATH|none");
  CLI::Option* const trace =
      overriding(
          "--trace", "output.trace",
          "write a timeline of all ranks to FILE (open it in ui.perfetto.dev or chrome://tracing)")
          ->type_name("FILE");
  overriding(
      "--trace-steps", "output.trace_steps",
      "trace only steps A to B, counted from 1 (default: from the start until the event buffer "
      "is full)")
      ->type_name("A:B");
  CLI::Option* const validate =
      app.add_option("--validate", arguments.validate,
                     "train nothing: validate a saved network on the test images; PATH is "
                     "model.safetensors, best.safetensors or a checkpoint")
          ->type_name("PATH")
          ->check([](const std::string& path) { return path.empty() ? "needs a file" : ""; })
          ->excludes("--resume")
          ->excludes(trace);
  app.add_flag("--dry-run", arguments.dry_run,
               "print the resolved configuration and the layers of the model, then exit")
      ->excludes(validate);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    print_error(with_help(what_is_wrong(app, error), app.get_name()));
    return kExitUsage;
  }
  return arguments.dry_run ? dry_run(arguments) : work(arguments);
}

}  // namespace
}  // namespace dlaunch

int main(int argc, char** argv) {
  dlaunch::open_standard_descriptors();
  (void)std::signal(SIGXFSZ, SIG_IGN);  // a file that is too large is an error of the write
  dlaunch::set_gpu_environment();
  return dlaunch::run_program("dtrain", dlaunch::kExitFailure,
                              [&] { return dlaunch::run(argc, argv); });
}
