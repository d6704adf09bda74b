#include "trainers/config/config.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <system_error>

#include <spdlog/fmt/fmt.h>

#include "nn/cuda/cuda_backend.h"
#include "nn/models/model.h"
#include "runtime/base/json_reader.h"
#include "trainers/config/output_paths.h"

namespace dlaunch {
namespace {

constexpr std::int64_t kMany = 1'000'000'000;
constexpr IntegerRange kPositive{1, kMany};
constexpr IntegerRange kNotNegative{0, kMany};

std::size_t read_size(JsonObject& object, const std::string& key, std::int64_t fallback,
                      IntegerRange allowed) {
  return static_cast<std::size_t>(object.integer(key, fallback, allowed));
}

/// Refuses keys that would change nothing. `why` ends the sentence: "has no effect ...".
void refuse_idle(const JsonObject& object, std::initializer_list<const char*> keys,
                 const std::string& why) {
  for (const char* key : keys)
    if (object.has(key)) object.refuse(key, "has no effect " + why);
}

/// What is usual for a data set.
struct DataDefaults {
  DataSet set;
  std::string name;
  std::string directory;
  nn::Normalization normalization;
};

std::vector<DataDefaults> data_defaults() {
  return {
      {DataSet::kCifar10,
       "cifar-10",
       "data/cifar-10-batches-bin",
       {{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}}},
      {DataSet::kCifar100,
       "cifar-100",
       "data/cifar-100-binary",
       {{0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}}},
      {DataSet::kFolder, "folder", "data/images", {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}}},
      {DataSet::kSynthetic, "synthetic", "", {{0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}}},
  };
}

void read_synthetic(JsonObject& object, nn::SyntheticOptions& options) {
  options.seed = static_cast<std::uint64_t>(object.integer("seed", 1, kNotNegative));
  options.classes = read_size(object, "classes", 10, {2, 10000});
  options.train_size = read_size(object, "train_size", 10000, kPositive);
  options.test_size = read_size(object, "test_size", 2000, kPositive);
  options.shape.height = read_size(object, "height", 32, {4, 1024});
  options.shape.width = read_size(object, "width", 32, {4, 1024});
  options.shape.channels = 3;
  options.noise = static_cast<std::uint8_t>(object.integer("noise", 90, {0, 255}));
}

void read_augmentation(JsonObject& object, nn::Augmentation& augmentation) {
  augmentation.crop_padding = read_size(object, "crop_padding", 0, {0, 64});
  augmentation.pad_mode = object.choice("pad_mode", "zero", {"zero", "reflect"}) == "zero"
                              ? nn::PadMode::kZero
                              : nn::PadMode::kReflect;
  augmentation.crop_batch = object.choice("crop_scope", "image", {"image", "batch"}) == "batch";
  // Beside a flip that is false it stays: that is how flipping is switched off for a moment.
  if (!object.has("flip")) refuse_idle(object, {"flip_mode"}, "without data.flip; set that too");
  const bool flip = object.boolean("flip", false);
  const std::string mode =
      object.choice("flip_mode", "random", {"random", "alternating", "first_half"});
  augmentation.flip = !flip                   ? nn::FlipMode::kNone
                      : mode == "random"      ? nn::FlipMode::kRandom
                      : mode == "alternating" ? nn::FlipMode::kAlternating
                                              : nn::FlipMode::kFirstHalf;
  augmentation.brightness = object.number("brightness", 0, {.min = 0, .max = 1});
  augmentation.contrast = object.number("contrast", 0, {.min = 0, .max = 1});
  augmentation.cutout = read_size(object, "cutout", 0, {0, 1024});
}

void read_resize(JsonObject& object, std::vector<nn::ResizeStage>& stages) {
  const auto sides = object.integers("resize_sides", {}, {4, 4096});
  const std::vector<double> until = object.numbers("resize_until", {}, {.min = 0});
  if (sides.size() != until.size())
    object.refuse(object.has("resize_until") ? "resize_until" : "resize_sides",
                  fmt::format("{} resize_sides need as many resize_until, not {}", sides.size(),
                              until.size()));
  if (!std::is_sorted(until.begin(), until.end()))
    object.refuse("resize_until", "they must ascend");
  for (std::size_t i = 0; i < sides.size(); ++i)
    stages.push_back({until[i], static_cast<std::size_t>(sides[i])});
}

void read_data(JsonObject& object, DataConfig& data) {
  const std::vector<DataDefaults> sets = data_defaults();
  std::vector<std::string> names;
  names.reserve(sets.size());
  for (const DataDefaults& set : sets) names.push_back(set.name);
  const std::string name = object.choice("set", "cifar-100", names);
  const DataDefaults& defaults = *std::find_if(
      sets.begin(), sets.end(), [&](const DataDefaults& set) { return set.name == name; });
  data.set = defaults.set;
  data.directory = object.text("directory", defaults.directory);
  if (data.directory.empty() && data.set != DataSet::kSynthetic)
    object.refuse("directory", "allowed: a folder; \".\" is the working directory");
  const auto size = object.integers("image_size", {}, {4, 4096});
  if (!size.empty()) {
    if (size.size() != 2) object.refuse("image_size", "allowed: [height, width], or [] to keep it");
    if (data.set != DataSet::kFolder)
      object.refuse("image_size", "only data.set \"folder\" can be resized");
    data.image_size = {static_cast<std::size_t>(size[0]), static_cast<std::size_t>(size[1]), 3};
  }
  // Of values from 0 to 1. A larger deviation makes them smaller, which may be wanted.
  data.normalization.mean =
      object.numbers("mean", defaults.normalization.mean, {.min = 0, .max = 1});
  data.normalization.deviation =
      object.numbers("std", defaults.normalization.deviation, {.min = 0, .above_min = true});
  if (data.normalization.mean.size() != 3) object.refuse("mean", "allowed: three numbers");
  if (data.normalization.deviation.size() != 3) object.refuse("std", "allowed: three numbers");
  read_augmentation(object, data.augmentation);
  read_resize(object, data.resize);
  data.on_device = object.boolean("on_device", true);
  if (!object.has("mix")) refuse_idle(object, {"mix_alpha"}, "without data.mix; set that too");
  const std::string mix = object.choice("mix", "none", {"none", "mixup", "cutmix", "either"});
  data.mix.kind = mix == "mixup"    ? nn::MixKind::kMixup
                  : mix == "cutmix" ? nn::MixKind::kCutmix
                  : mix == "either" ? nn::MixKind::kEither
                                    : nn::MixKind::kNone;
  data.mix.alpha = object.number("mix_alpha", 1, {.min = 0.01, .max = 4});
  data.resident = object.boolean("resident", false);
  data.prefetch = read_size(object, "prefetch", 4, {1, 1024});
  data.workers = read_size(object, "workers", 1, {1, 256});
  object.object("synthetic",
                [&](JsonObject& synthetic) { read_synthetic(synthetic, data.synthetic); });
}

/// What is said about biases and normalisation parameters apart from the weights.
void read_kinds(JsonObject& object, nn::WeightDecay& decay, nn::PerKind& rate_factors) {
  decay.weight = object.number("weight_decay", 0, {.min = 0});
  const double others = object.boolean("decay_weights_only", false) ? 0 : decay.weight;
  decay.bias = object.number("bias_weight_decay", others, {.min = 0});
  decay.norm = object.number("norm_weight_decay", others, {.min = 0});
  rate_factors.weight = 1;
  rate_factors.bias = object.number("bias_learning_rate_factor", 1, {.min = 0});
  rate_factors.norm = object.number("norm_learning_rate_factor", 1, {.min = 0});
  decay.stem = decay.bias;
  rate_factors.stem = rate_factors.bias;
}

nn::SgdOptions read_sgd(JsonObject& object) {
  nn::SgdOptions options;
  options.momentum = object.number("momentum", 0.9, {.min = 0, .max = 1, .below_max = true});
  options.nesterov = object.boolean("nesterov", false);
  if (options.nesterov && options.momentum == 0)
    object.refuse("nesterov", "needs a momentum above 0");
  read_kinds(object, options.weight_decay, options.rate_factors);
  return options;
}

nn::AdamOptions read_adam(JsonObject& object, bool decoupled) {
  nn::AdamOptions options;
  constexpr NumberRange kBeta{.min = 0, .max = 1, .below_max = true};
  options.beta1 = object.number("beta1", 0.9, kBeta);
  options.beta2 = object.number("beta2", 0.999, kBeta);
  options.eps = object.number("eps", 1e-8, {.min = std::numeric_limits<float>::min()});
  options.decoupled_decay = decoupled;
  read_kinds(object, options.weight_decay, options.rate_factors);
  return options;
}

nn::MuonOptions read_muon(JsonObject& object) {
  nn::MuonOptions options;
  options.momentum = object.number("momentum", 0.95, {.min = 0, .max = 1, .below_max = true});
  options.nesterov = object.boolean("nesterov", true);
  options.iterations = static_cast<int>(object.integer("iterations", 5, {1, 100}));
  const std::string scale =
      object.choice("scale", "original", {"original", "match_adam", "normalise"});
  options.scale = scale == "original"     ? nn::MuonScale::kOriginal
                  : scale == "match_adam" ? nn::MuonScale::kMatchAdam
                                          : nn::MuonScale::kNormalise;
  read_kinds(object, options.others.weight_decay, options.others.rate_factors);
  options.weight_decay = options.others.weight_decay.weight;
  options.others.weight_decay.weight =
      object.number("others_weight_decay", options.weight_decay, {.min = 0});
  options.bf16 = object.choice("iteration_type", "fp32", {"fp32", "bf16"}) == "bf16";
  options.others.momentum =
      object.number("others_momentum", 0.9, {.min = 0, .max = 1, .below_max = true});
  options.others.nesterov = options.others.momentum > 0;
  options.others_factor = object.number("others_learning_rate_factor", 1, {.min = 0});
  return options;
}

/// Refuses keys that belong to other values of the section's name than what it is.
void refuse_others_keys(const JsonObject& object, const std::string& section,
                        const std::string& name, const std::vector<std::string>& names,
                        std::initializer_list<const char*> keys) {
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  refuse_idle(object, keys,
              fmt::format("unless {0}.name is \"{1}\", found \"{2}\"; add --set {0}.name={3}, or "
                          "replace the section: --set '{0}={{\"name\": \"{2}\"}}'",
                          section, fmt::join(names, "\" or \""), name, names.front()));
}

void read_optimizer(JsonObject& object, TrainConfig& config) {
  const std::string name = object.choice("name", "sgd", {"sgd", "adam", "adamw", "muon"});
  const auto only = [&](const std::vector<std::string>& names,
                        std::initializer_list<const char*> keys) {
    refuse_others_keys(object, "optimizer", name, names, keys);
  };
  only({"sgd", "muon"}, {"momentum", "nesterov"});
  only({"adam", "adamw"}, {"beta1", "beta2", "eps"});
  only({"muon"}, {"iterations", "scale", "iteration_type", "others_weight_decay", "others_momentum",
                  "others_learning_rate_factor"});
  config.schedule.learning_rate =
      object.number("learning_rate", name.starts_with("adam") ? 0.001 : 0.1, {.min = 0});
  if (name == "sgd") config.optimizer = read_sgd(object);
  if (name == "adam" || name == "adamw") config.optimizer = read_adam(object, name == "adamw");
  if (name == "muon") config.optimizer = read_muon(object);
  config.clip_norm = object.number("clip_norm", 0, {.min = 0});
}

void read_ema(JsonObject& object, EmaConfig& ema) {
  ema.decay = object.number("decay", 0, {.min = 0, .max = 0.9999999});  // else nothing moves
  ema.every = read_size(object, "every", 1, kPositive);
}

void read_milestones(JsonObject& object, ScheduleConfig& schedule) {
  schedule.milestones = object.numbers("milestones", {}, {.min = 0});
  schedule.gamma = object.number("gamma", 0.1, {.min = 0, .max = 1});
  if (!std::is_sorted(schedule.milestones.begin(), schedule.milestones.end()))
    object.refuse("milestones", "they must ascend");
  if (schedule.milestones.empty())
    object.refuse("milestones", "a multi_step schedule needs milestones");
}

void read_points(JsonObject& object, ScheduleConfig& schedule) {
  schedule.point_epochs = object.numbers("point_epochs", {}, {.min = 0});
  schedule.point_factors = object.numbers("point_factors", {}, {.min = 0});
  if (!std::is_sorted(schedule.point_epochs.begin(), schedule.point_epochs.end()))
    object.refuse("point_epochs", "they must ascend");
  if (schedule.point_epochs.size() != schedule.point_factors.size())
    object.refuse("point_factors",
                  fmt::format("{} factors for {} point_epochs", schedule.point_factors.size(),
                              schedule.point_epochs.size()));
  if (schedule.point_epochs.empty())
    object.refuse("point_epochs", "a piecewise_linear schedule needs points");
}

void read_schedule(JsonObject& object, ScheduleConfig& schedule) {
  schedule.name =
      object.choice("name", "constant", {"constant", "multi_step", "cosine", "piecewise_linear"});
  if (!object.has("warmup_epochs"))
    refuse_idle(object, {"warmup_start_factor"}, "without schedule.warmup_epochs; set that too");
  schedule.warmup_epochs = object.number("warmup_epochs", 0, {.min = 0});
  schedule.warmup_start_factor = object.number("warmup_start_factor", 0.01, {.min = 0, .max = 1});
  schedule.stem_epochs = object.number("stem_epochs", 0, {.min = 0});
  const auto uses = [&](const std::string& name, std::initializer_list<const char*> keys) {
    refuse_others_keys(object, "schedule", schedule.name, {name}, keys);
    return schedule.name == name;
  };
  const bool multi_step = uses("multi_step", {"milestones", "gamma"});
  const bool cosine = uses("cosine", {"final_factor"});
  const bool piecewise_linear = uses("piecewise_linear", {"point_epochs", "point_factors"});
  if (multi_step) read_milestones(object, schedule);
  if (cosine) schedule.final_factor = object.number("final_factor", 0, {.min = 0, .max = 1});
  if (piecewise_linear) read_points(object, schedule);
}

void read_precision(JsonObject& object, TrainConfig& config) {
  const std::string compute =
      object.choice("compute_type", "fp32", {"fp32", "bf16", "fp16", "auto"});
  config.compute_type = compute == "fp32"   ? ComputeType::kF32
                        : compute == "bf16" ? ComputeType::kBF16
                        : compute == "fp16" ? ComputeType::kF16
                                            : ComputeType::kAuto;
  const std::string scaling =
      object.choice("loss_scaling", "auto", {"auto", "none", "dynamic", "fixed"});
  LossScaling& loss = config.loss_scaling;
  loss.enabled = scaling == "auto" ? config.compute_type == ComputeType::kF16 : scaling != "none";
  loss.fixed = scaling == "fixed";
  loss.scale = object.number("loss_scale", 65536, {.min = 1, .max = 1e38});
  loss.growth_steps = read_size(object, "loss_scale_growth_steps", 2000, {1, 1 << 24});
}

void read_train(JsonObject& object, TrainConfig& config) {
  config.epochs = read_size(object, "epochs", 20, kPositive);
  config.global_batch_size = read_size(object, "global_batch_size", 0, kNotNegative);
  const bool global = config.global_batch_size > 0;
  config.batch_size_per_rank =
      read_size(object, "batch_size_per_rank", global ? 0 : 32, global ? kNotNegative : kPositive);
  if (global && config.batch_size_per_rank > 0)
    object.refuse(
        "global_batch_size",
        fmt::format("train.batch_size_per_rank is {} too: --set train.global_batch_size=0 "
                    "or train.batch_size_per_rank=0, whichever is not meant",
                    config.batch_size_per_rank));
  config.accumulation_steps = read_size(object, "accumulation_steps", 1, {1, 100000});
  config.drop_last = object.boolean("drop_last", false);
  config.seed = static_cast<std::uint64_t>(object.integer("seed", 1, {.min = 0}));
  // Ghost batch norm, which that network has, is of a part of a rank's images.
  const bool can_synchronise = config.model != "resnet_bag_of_tricks";
  config.sync_batch_norm = object.boolean("sync_batch_norm", can_synchronise);
  if (config.sync_batch_norm && !can_synchronise)
    object.refuse("sync_batch_norm", "resnet_bag_of_tricks has no batch norm over all ranks");
  config.label_smoothing =
      object.number("label_smoothing", 0, {.min = 0, .max = 1, .below_max = true});
  const std::string views =
      object.choice("validation_views", "single", {"single", "mirror", "mirror_shift"});
  config.validation_views = views == "single"   ? ValidationViews::kSingle
                            : views == "mirror" ? ValidationViews::kMirror
                                                : ValidationViews::kMirrorShift;
  config.max_steps = read_size(object, "max_steps", 0, kNotNegative);
  config.max_seconds = object.number("max_seconds", 0, {.min = 0});
  config.validate_every = read_size(object, "validate_every", 1, kNotNegative);
  config.validation_batch_size = read_size(object, "validation_batch_size", 0, {0, 100000});
  read_precision(object, config);
  config.winograd = object.boolean("winograd", false);
  config.tf32 = object.boolean("tf32", false);
  config.autotune = object.boolean("autotune", false);
  config.cuda_graphs = object.boolean("cuda_graphs", true);
  config.prepare_steps = object.boolean("prepare_steps", false);
  const std::string device = object.choice("device", "cpu", {"cpu", "cuda"}, {{"gpu", "cuda"}});
  if (device == "cuda") config.device = DeviceKind::kCuda;
  if (config.device == DeviceKind::kCuda && !nn::built_with_cuda())
    object.refuse("device", "this build has no CUDA; use \"cpu\"");
}

/// Whether a variable of the environment is set to more than 0.
bool is_counted(const char* variable) {
  const char* text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nobody changes it
  return text != nullptr && std::string_view(text) != "0";
}

void read_checkpoint(JsonObject& object, CheckpointConfig& checkpoint) {
  checkpoint.every_steps = read_size(object, "every_steps", 0, kNotNegative);
  checkpoint.every_epochs = read_size(object, "every_epochs", 0, kNotNegative);
  checkpoint.keep = read_size(object, "keep", 3, kPositive);
  checkpoint.keep_best = object.boolean("keep_best", false);
  checkpoint.final_network = object.boolean("final", true);
  const std::string resume = object.text("resume", "restart");
  if (resume.empty())
    object.refuse("resume", "allowed: auto, none, restart or a checkpoint's path");
  // Nodes that come and go cost a job no restart.
  const bool restarted =
      is_counted("DLAUNCH_RESTARTED") || is_counted("TORCHELASTIC_RESTART_COUNT");
  const bool named = resume != "restart" && resume != "auto" && resume != "none";
  checkpoint.restarted = restarted;
  if (named) checkpoint.path = resume;
  // A job that writes none has none to go on from: those that are there are another's.
  checkpoint.resume = resume == "auto" || (restarted && resume != "none" && checkpoint.enabled())
                          ? CheckpointConfig::Resume::kNewest
                          : CheckpointConfig::Resume::kNone;
}

void read_parallel(JsonObject& object, TrainConfig& train) {
  ParallelConfig& config = train.parallel;
  const std::string gradients = object.choice("gradients", "all_reduce",
                                              {"all_reduce", "shard", "fp16", "bf16", "power_sgd"});
  config.gradients = gradients == "shard"       ? GradientExchange::kShard
                     : gradients == "fp16"      ? GradientExchange::kFloat16
                     : gradients == "bf16"      ? GradientExchange::kBFloat16
                     : gradients == "power_sgd" ? GradientExchange::kPowerSgd
                                                : GradientExchange::kAllReduce;
  if (config.gradients == GradientExchange::kShard &&
      std::holds_alternative<nn::MuonOptions>(train.optimizer))
    object.refuse("gradients", "muon needs whole matrices, so its state cannot be sharded");
  constexpr double kMiB = 1 << 20;
  const auto bytes = [&](const char* key, double standard) {
    return static_cast<std::size_t>(
        object.number(key, standard / kMiB, {.min = 0, .max = 1 << 20}) * kMiB);
  };
  config.buckets.bytes = bytes("bucket_mib", static_cast<double>(BucketLimits{}.bytes));
  config.buckets.first_bytes =
      bytes("first_bucket_mib", static_cast<double>(BucketLimits{}.first_bytes));
  config.power_sgd_rank = read_size(object, "power_sgd_rank", 2, {1, 64});
  config.plain_steps = read_size(object, "plain_steps", 0, kNotNegative);
  config.device_path = *device_path_from_name(
      object.choice("device_path", "auto", {"auto", "nccl", "ipc", "staging"}));
}

/// "5:10", both included and counted from 1.
void read_trace_steps(JsonObject& object, TraceOptions& trace) {
  const std::string steps = object.text("trace_steps", "");
  if (steps.empty()) return;
  const char* const end = steps.data() + steps.size();
  const auto [colon, first_error] = std::from_chars(steps.data(), end, trace.first_step);
  const bool two = first_error == std::errc() && colon != end && *colon == ':';
  const auto [rest, last_error] =
      two ? std::from_chars(colon + 1, end, trace.last_step) : std::from_chars_result{colon, {}};
  if (!two || last_error != std::errc() || rest != end || trace.first_step < 1 ||
      trace.last_step < trace.first_step)
    object.refuse("trace_steps", "allowed: FIRST:LAST, both included, the first step being 1");
  if (trace.file.empty())
    object.refuse("trace_steps", "has no effect without output.trace (--trace FILE); set that too");
}

void read_output(JsonObject& object, const std::string& source, TrainConfig& config) {
  const std::string stem = std::filesystem::path(source).stem().string();
  config.output_directory = object.text("directory", "runs/" + stem);
  if (config.output_directory.empty())
    object.refuse("directory", "allowed: a folder; \".\" is the working directory");
  config.metrics_file = object.text("metrics", "metrics.jsonl");
  config.trace.file = object.text("trace", "");
  read_trace_steps(object, config.trace);
  config.tensorboard = object.text("tensorboard", "tensorboard");
  config.log_every = read_size(object, "log_every", 50, kPositive);
  const std::string progress = object.choice("progress", "auto", {"auto", "bar", "lines", "none"});
  config.progress = progress == "auto"    ? ProgressStyle::kAuto
                    : progress == "bar"   ? ProgressStyle::kBar
                    : progress == "lines" ? ProgressStyle::kLines
                                          : ProgressStyle::kNone;
  refuse_shared_paths(object, config, source);
}

}  // namespace

TrainConfig read_train_config(const nlohmann::json& json, const ConfigSource& source) {
  TrainConfig config;
  config.resolved = read_json_object(json, source, [&](JsonObject& root) {
    root.object("data", [&](JsonObject& object) { read_data(object, config.data); });
    root.object("model", [&](JsonObject& object) {
      config.model = object.choice("name", "small_cnn", nn::model_names());
      config.weights = object.text("weights", "");
      config.new_classifier = object.boolean("new_classifier", false);
      if (config.new_classifier && config.weights.empty())
        object.refuse("new_classifier", "has no effect without model.weights; set that too");
    });
    root.object("optimizer", [&](JsonObject& object) { read_optimizer(object, config); });
    root.object("ema", [&](JsonObject& object) { read_ema(object, config.ema); });
    root.object("schedule", [&](JsonObject& object) { read_schedule(object, config.schedule); });
    root.object("train", [&](JsonObject& object) { read_train(object, config); });
    root.object("checkpoint",
                [&](JsonObject& object) { read_checkpoint(object, config.checkpoint); });
    root.object("parallel", [&](JsonObject& object) { read_parallel(object, config); });
    root.object("output", [&](JsonObject& object) { read_output(object, source.file(), config); });
  });
  return config;
}

TrainConfig load_train_config(const std::string& path,
                              const std::vector<ConfigOverride>& overrides) {
  nlohmann::json json = read_json_file(path);
  ConfigSource source(path);
  for (const ConfigOverride& given : overrides)
    source.replace(apply_override(json, given.assignment), given.origin);
  return read_train_config(json, source);
}

}  // namespace dlaunch
