// TrainConfig: everything a training run is told, as read from JSON (docs: "Configuration").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "nn/data/batch_loader.h"
#include "nn/data/mix.h"
#include "nn/data/synthetic.h"
#include "nn/data/transform.h"
#include "nn/optim/make_optimizer.h"
#include "nn/optim/schedule.h"
#include "runtime/base/json_reader.h"
#include "runtime/device/path_choice.h"
#include "runtime/parallel/gradient_reducer_options.h"
#include "trainers/output/lost_files.h"
#include "trainers/trace/trace_options.h"

namespace dlaunch {

enum class DataSet { kCifar10, kCifar100, kFolder, kSynthetic };

struct DataConfig {
  DataSet set = DataSet::kCifar100;
  std::string directory;
  std::optional<nn::ImageShape> image_size;  // folders: resize to
  nn::Normalization normalization;
  nn::Augmentation augmentation;
  nn::MixOptions mix;
  std::vector<nn::ResizeStage> resize;  // of training images
  bool on_device = true;                // GPU: training images live there
  std::size_t prefetch = 4;             // micro-batches
  std::size_t workers = 1;              // threads of a rank that make images
  bool resident = false;                // for measurements: one batch again and again
  nn::SyntheticOptions synthetic;
};

struct ScheduleConfig {
  std::string name;  // constant, multi_step, cosine, piecewise_linear
  double learning_rate = 0;
  double warmup_epochs = 0;
  double warmup_start_factor = 0;    // of the learning rate
  double stem_epochs = 0;            // of the stem's bias; 0: as all others
  std::vector<double> milestones;    // multi_step, in epochs
  double gamma = 0;                  // multi_step
  double final_factor = 0;           // cosine: of the learning rate
  std::vector<double> point_epochs;  // piecewise_linear
  std::vector<double> point_factors;
};

struct EmaConfig {
  double decay = 0;       // of the average at each update; 0: no average
  std::size_t every = 1;  // steps of an epoch: 0, every, 2 every, ...

  bool enabled() const { return decay > 0; }
};

struct CheckpointConfig {
  enum class Resume {
    kNone,    // begin anew, or from `path` if there is one
    kNewest,  // the newest of this run, else as kNone
  };

  std::size_t every_steps = 0;   // 0: not by steps
  std::size_t every_epochs = 0;  // 0: not by epochs
  std::size_t keep = 0;
  bool keep_best = false;     // the network that was validated best, in a file of its own
  bool final_network = true;  // that at the end of training, in another
  Resume resume = Resume::kNone;
  bool restarted = false;  // by dlaunch
  std::string path;        // empty: none

  bool enabled() const { return every_steps > 0 || every_epochs > 0; }
};

enum class DeviceKind { kCpu, kCuda };

/// Of activations and convolutions; auto: bf16 where the device multiplies in it.
enum class ComputeType { kF32, kBF16, kF16, kAuto };

/// Of the loss, so that gradients fit into f16 (trainers/training/loss_scaler.h).
struct LossScaling {
  bool enabled = false;
  bool fixed = false;            // the scale stays as it is; else it moves
  double scale = 0;              // in the first step
  std::size_t growth_steps = 0;  // good ones in a row before it grows
};

/// What a test image's scores are the mean of.
enum class ValidationViews {
  kSingle,       // the image
  kMirror,       // and its mirror image
  kMirrorShift,  // half of that, and half the same of the image moved by a pixel towards two
                 // corners
};

/// How gradients are summed over the ranks; GradientReducerOptions says what these are.
struct ParallelConfig {
  GradientExchange gradients = GradientExchange::kAllReduce;
  BucketLimits buckets;
  std::size_t power_sgd_rank = 0;
  std::size_t plain_steps = 0;
  DevicePathKind device_path = DevicePathKind::kAuto;  // of collectives on GPU memory
};

// Networks alone, and a folder of checkpoints, in the output folder.
inline constexpr const char* kBestFile = "best.safetensors";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kCheckpointFolder = "checkpoints";

enum class ProgressStyle { kAuto, kBar, kLines, kNone };

struct TrainConfig {
  DataConfig data;
  std::string model;
  std::string weights;          // file of initial weights; empty: random ones
  bool new_classifier = false;  // the last linear layer begins at random all the same
  nn::OptimizerOptions optimizer;
  double clip_norm = 0;  // greatest norm of a step's gradients; 0: any
  EmaConfig ema;
  ScheduleConfig schedule;
  CheckpointConfig checkpoint;
  ParallelConfig parallel;

  std::size_t epochs = 0;
  std::size_t batch_size_per_rank = 0;  // of a micro-batch; 0: global_batch_size holds
  std::size_t global_batch_size = 0;    // of a step, over all ranks and micro-batches
  std::size_t accumulation_steps = 1;
  bool drop_last = false;  // no smaller step at the end of an epoch
  std::uint64_t seed = 0;
  bool sync_batch_norm = true;
  DeviceKind device = DeviceKind::kCpu;
  ComputeType compute_type = ComputeType::kF32;
  bool winograd = false;  // for 3x3 convolutions on CPU
  bool tf32 = false;      // for f32 convolutions and products on GPU
  bool autotune = false;  // measure convolutions' engines on GPU
  LossScaling loss_scaling;
  bool cuda_graphs = true;     // record steps on GPU and repeat them whole, where that can be
  bool prepare_steps = false;  // on GPUs: some of every size before the time counts
  double label_smoothing = 0;
  ValidationViews validation_views = ValidationViews::kSingle;
  std::size_t max_steps = 0;              // 0: no limit
  double max_seconds = 0;                 // 0: no limit
  std::size_t validate_every = 1;         // epochs; 0: at the end only
  std::size_t validation_batch_size = 0;  // 0: affordable_validation() says

  std::string output_directory;
  std::string metrics_file;  // within it; empty: none
  TraceOptions trace;
  std::string tensorboard;  // folder within it, for TensorBoard's event files; empty: none
  ProgressStyle progress = ProgressStyle::kAuto;
  std::size_t log_every = 0;  // steps between metrics lines

  nlohmann::ordered_json resolved;  // every key with the value in force

  /// Of a file in the output folder, or of one that is named absolutely.
  std::string output_path(const std::string& name) const;
  /// What training leaves, for people: "runs/x: metrics.jsonl, checkpoints; /tmp/trace.json".
  std::string describe_files(const LostFiles& lost = {}) const;
  /// Whether there is anything that training writes into the output folder.
  bool writes_output() const;
  /// Samples of a step, over all ranks and micro-batches. ConfigError if a rank would get none.
  std::size_t samples_per_step(std::size_t ranks) const;
  /// The learning rate by epochs passed (fractional).
  nn::Schedule learning_rate() const;
  /// What of the schedule train.epochs does not come to, for people; empty: it is whole.
  std::string schedule_remark() const;
  /// That of a stem's bias (ParameterKind::kStem).
  nn::Schedule stem_learning_rate() const;
};

/// Reads and checks `json`; `source` names it in errors (ConfigError) and gives the output folder
/// its default name.
TrainConfig read_train_config(const nlohmann::json& json, const ConfigSource& source);

struct ConfigOverride {
  // NOLINTNEXTLINE(google-explicit-constructor): "train.epochs=3"
  ConfigOverride(const std::string& text) : assignment(text), origin("--set " + text) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  ConfigOverride(const char* text) : ConfigOverride(std::string(text)) {}
  ConfigOverride(std::string text, std::string from)
      : assignment(std::move(text)), origin(std::move(from)) {}

  std::string assignment;  // as for apply_override()
  std::string origin;      // what the user has written
};

/// Reads a file and applies overrides before checking.
TrainConfig load_train_config(const std::string& path,
                              const std::vector<ConfigOverride>& overrides);

}  // namespace dlaunch
