#include "tools/bench/training/options.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "runtime/base/option_errors.h"
#include "runtime/base/option_help.h"
#include "tools/bench/size_option.h"

namespace dlaunch::bench {
namespace {

void add_common(CLI::App& app, TrainingOptions& options) {
  app.add_option("--nproc", options.nproc, "Ranks to start when not started by dlaunch")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "Threads of each rank (sets OMP_NUM_THREADS)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--json", options.json_path, "Write the results to this file too")
      ->type_name("FILE");
}

void add_train(CLI::App& app, TrainingOptions& options) {
  CLI::App* sub = app.add_subcommand("train", "Training steps of a configuration of dtrain");
  sub->callback([&options] { options.subject = TrainingSubject::kTrain; });
  add_common(*sub, options);
  sub->add_option("CONFIG.json", options.config, "The configuration (JSON, comments allowed)")
      ->required()
      ->check(CLI::ExistingFile);
  sub->add_option("--set", options.overrides, "Override one value; may be repeated")
      ->type_name("key.path=value")
      ->allow_extra_args(false);
  sub->add_flag("--own-data", options.own_data,
                "Read the configuration's data set instead of built-in images of its shape");
  sub->add_option("--warmup", options.warmup_steps, "Steps that do not count")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  sub->add_option("--steps", options.steps, "Steps that count")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
}

/// "512x64x32" is 512 images of 64 channels and 32 x 32 pixels.
ImageCell parse_images(const std::string& text) {
  ImageCell cell;
  char rest = 0;
  const int read =
      std::sscanf(text.c_str(), "%dx%dx%d%c", &cell.count, &cell.channels, &cell.side, &rest);
  if (read != 3 || cell.count < 1 || cell.channels < 1 || cell.side < 1)
    throw CLI::ValidationError("--images", text + ": allowed: COUNTxCHANNELSxSIDE, as 512x64x32");
  return cell;
}

void add_device(CLI::App& sub, TrainingOptions& options) {
  sub.add_option_function<std::string>(
         "--device",
         [&options](const std::string& name) {
           options.device = name == "cuda" ? BenchDeviceKind::kCuda : BenchDeviceKind::kCpu;
         },
         "On a GPU times are of its own events")
      ->type_name("cpu|cuda")
      ->check([](const std::string& text) {
        return text == "cpu" || text == "cuda" ? "" : "'" + text + "' is none of cpu, cuda";
      });
  sub.add_option_function<std::string>(
         "--device-path",
         [&options](const std::string& name) {
           options.device_path = *device_path_from_name(name);
         },
         "The way that collectives of several ranks on GPUs take (default auto)")
      ->type_name("auto|nccl|ipc|staging")
      ->check([](const std::string& text) {
        return device_path_from_name(text) ? ""
                                           : "'" + text + "' is none of auto, nccl, ipc, staging";
      });
}

void add_limits(CLI::App& sub, TrainingOptions& options) {
  sub.add_option("--seconds", options.limits.seconds, "Time for each cell at most")
      ->type_name("SECONDS")
      ->check(number_range(1e-3, 1e6))
      ->capture_default_str();
  sub.add_option_function<int>(
         "--iterations",
         [&options](int iterations) { options.limits.least = options.limits.most = iterations; },
         "Exactly so many repetitions, instead of as many as the median needs")
      ->check(CLI::Range(1, 1'000'000));
}

void add_device_limits(CLI::App& app, TrainingOptions& options) {
  CLI::App* sub = app.add_subcommand(
      "device", "What a device does at best: copies in its memory, products of matrices");
  sub->callback([&options] { options.subject = TrainingSubject::kDevice; });
  add_common(*sub, options);
  add_device(*sub, options);
  add_limits(*sub, options);
  sub->add_option("--matrix", options.matrix, "Side of the matrices (default 8192, on a CPU 2048)")
      ->check(CLI::Range(1, 65536));
  add_size_option(*sub, "--bytes", options.copy_bytes, "To copy, as 512M");
}

void add_sync_batch_norm(CLI::App& app, TrainingOptions& options) {
  CLI::App* sub = app.add_subcommand(
      "syncbn", "SyncBatchNorm forward and backward, with BatchNorm of the same rows beside it");
  sub->callback([&options] { options.subject = TrainingSubject::kSyncBatchNorm; });
  add_common(*sub, options);
  sub->add_option("--channels", options.channels, "As 128,256")->delimiter(',');
  sub->add_option("--batches", options.batches, "Rows on each rank, as 32,64")->delimiter(',');
  sub->add_option_function<std::vector<std::string>>(
         "--images",
         [&options](const std::vector<std::string>& cells) {
           for (const std::string& cell : cells) options.images.push_back(parse_images(cell));
         },
         "Batches of images on each rank, in NHWC, as 512x64x32")
      ->type_name("COUNTxCHANNELSxSIDE")
      ->delimiter(',');
  sub->add_flag("--bf16", options.bf16, "Input and result in bf16");
  add_size_option(*sub, "--bound-bytes", options.copy_bytes,
                  "On a GPU: size of the copy that the bound is computed from, as 512M");
  add_device(*sub, options);
  add_limits(*sub, options);
}

}  // namespace

TrainingOptions parse_training_options(int argc, char** argv, std::string& help) {
  TrainingOptions options;
  CLI::App app("Times training. Run it under dlaunch, or alone: then it starts --nproc ranks.");
  app.name("dbench");
  app.formatter(std::make_shared<OptionHelp>());
  app.require_subcommand(1);
  add_train(app, options);
  add_sync_batch_norm(app, options);
  add_device_limits(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success&) {
    help = app.help();
    throw;
  } catch (const CLI::ParseError& error) {
    throw CLI::ValidationError(refusal(app, error));
  }
  return options;
}

}  // namespace dlaunch::bench
