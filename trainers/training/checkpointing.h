// Checkpointing: writes what a training run consists of to files, in the background, and finds the
// place where a run goes on. As long as it lives the output folder is this run's alone, if anything
// is written there.
//
// A checkpoint is one safetensors file (nn/checkpoint): the network's parameters and statistics
// under their own names, the optimizer's state under "optimizer.", and in the metadata the place in
// the run, the state of every rank's random numbers and what the data looked like. Rank 0 writes
// and reads it; the state of a tensor is the same on all ranks.
//
// One thread, on every rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nn/checkpoint/checkpoint_folder.h"
#include "nn/checkpoint/named_tensors.h"
#include "nn/core/random.h"
#include "nn/data/dataset.h"
#include "nn/data/sampler.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/logging.h"
#include "runtime/comm/communicator.h"
#include "trainers/config/config.h"

namespace dlaunch {

/// Between two steps.
struct RunPosition {
  std::uint64_t steps_done = 0;  // of the whole run
  std::size_t epoch = 0;         // of the next step
  std::size_t step = 0;          // of that epoch
};

/// Else it is a network alone, or something else.
bool is_checkpoint(const nn::SafetensorsFile& file);

/// What a checkpoint says of its run: every item that dtrain writes there, of its type. Throws
/// nn::DataError.
nlohmann::json training_in(const nn::SafetensorsFile& file);

class Checkpointing {
 public:
  /// What only rank 0 has of a run's state, for a moment perhaps. Called there, when a checkpoint
  /// is read, with the file that the tensors are filled from next, and when one is written, with
  /// null.
  using LeaderState =
      std::function<std::vector<nn::NamedTensor>(const nn::SafetensorsFile* source)>;

  /// `state` shares memory with the run and names what a checkpoint holds besides `leader_state`;
  /// `generator` is this rank's. Rank 0 looks for the checkpoint that the configuration asks for,
  /// checks it, and fills both from it. Throws nn::DataError if it cannot be used (it is damaged,
  /// of another network, of a run with other data or steps), ConfigError if checkpoints of another
  /// run are in the way, another run writes to the output folder, or files cannot be made there.
  /// All arguments must outlive the object.
  Checkpointing(const TrainConfig& config, Communicator& world, const nn::Dataset& train_set,
                const nn::StepPlan& plan, std::vector<nn::NamedTensor> state,
                LeaderState leader_state, nn::Generator& generator);
  /// Waits until what is being written is on the disk.
  ~Checkpointing();
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

  /// On rank 0: whether a checkpoint was found.
  bool resumes() const { return !found_.empty(); }
  /// The path of that.
  const std::string& found() const { return found_; }
  /// On rank 0: the same wherever this run goes on from a checkpoint of its own; another for a run
  /// that was configured otherwise when it began, also from the same checkpoint.
  const std::string& run_id() const { return run_id_; }

  struct ResumePoint {
    bool found = false;
    RunPosition position;
    nlohmann::json report;             // as it was given to save()
    std::vector<std::string> changed;  // a line for each setting that is another one now
  };
  /// Collective: gives all ranks the state that rank 0 found, if it found one. Throws StatusError.
  ResumePoint resume();

  /// Whether the configuration wants a checkpoint at this place, which is `last` or not; the same
  /// on all ranks.
  bool is_due(const RunPosition& position, bool last) const;
  /// Collective: copies the state and lets it be written while training goes on. If the write
  /// before has failed (the disk is full), says so on stderr; the newest before it stays. Throws
  /// StatusError, and nn::DataError if the data cannot be read.
  void save(const RunPosition& position, const nlohmann::json& report);
  /// Collective: waits for the last write. Throws StatusError, and std::runtime_error on rank 0 if
  /// the write failed.
  void finish();
  /// Rank 0, on any thread: calls `write`, which writes a file of this run's; as long as the disk
  /// has no room for it, removes this run's oldest checkpoint, but never the newest, and calls it
  /// again. Throws what `write` throws.
  void write_with_room(const std::function<void()>& write);

 private:
  std::vector<nn::NamedTensor> whole_state(const nn::SafetensorsFile* source) const;
  void find_checkpoint();
  bool resume_own(const std::string& newest);
  void begin_from(const std::string& path);
  void prepare_output();
  void refuse_folders_in_the_way() const;
  void lock_output();
  void load(const nn::SafetensorsFile& file, nlohmann::json training);
  void check_same_run(const nn::SafetensorsFile& file, const nlohmann::json& run);
  nlohmann::json describe_run() const;
  std::string how_to_have_samples(const nlohmann::json& samples) const;
  std::vector<std::string> changed_settings(const nlohmann::json& config) const;
  std::vector<std::uint64_t> gather_random_states();
  void await_write();

  const TrainConfig& config_;
  Communicator& world_;
  const nn::Dataset& train_set_;
  std::size_t steps_per_epoch_;
  std::vector<nn::NamedTensor> state_;
  LeaderState leader_state_;
  nn::Generator& generator_;
  nn::CheckpointFolder folder_;
  Descriptor lock_;  // rank 0: on the output folder
  Logger logger_ = make_logger("checkpoint");
  std::string run_id_;          // rank 0
  std::string found_;           // rank 0: the checkpoint that is gone on from; empty: none
  nlohmann::json training_;     // rank 0: of the checkpoint that was found
  std::string begun_from_;      // rank 0: the checkpoint that this run was told to begin from
  std::uint64_t begun_at_ = 0;  // its steps
  std::string fingerprint_;     // of the data; once that is computed:
  std::future<void> computing_fingerprint_;
  nn::Snapshot snapshot_;
  std::atomic<bool> has_made_room_ = false;
  std::future<void> writing_;
  bool has_written_ = false;
  std::string failure_;  // of the last write
};

}  // namespace dlaunch
