// Networks in files that dtrain begins with or validates: of its own, and of others.
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/exit_codes.h"
#include "runtime/base/half.h"
#include "tests/trainers/checkpoints.h"
#include "tests/trainers/images.h"

namespace dlaunch {
namespace {

using testing::CompletedProcess;
using ::testing::HasSubstr;
using testing::Tensors;

class NetworkFiles : public testing::Checkpoints {
 protected:
  /// One step, with a checkpoint after it.
  void train(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--set", "train.max_steps=1", "--set", "checkpoint.every_steps=1"});
    const CompletedProcess process = dtrain(0, more);
    ASSERT_EQ(process.exit_code, kExitOk) << process.error;
  }
  std::string refusal(const std::vector<std::string>& arguments, int code = kExitBadData) const {
    const CompletedProcess process = dtrain(2, arguments);
    EXPECT_EQ(process.exit_code, code) << process.error;
    const auto lines = complaints(process);
    EXPECT_EQ(lines.size(), 1U) << process.error;
    return lines.empty() ? "" : lines[0];
  }
  double validation_loss(const std::string& path) const {
    const CompletedProcess process = dtrain(0, {"--validate", path});
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
    return process.exit_code == kExitOk ? metrics("validation.jsonl").back()["validation_loss"]
                                        : nlohmann::json(-1.0);
  }
  /// The network of out/ as another program writes it.
  std::string foreign(const std::string& prefix, DType dtype) const {
    const nn::SafetensorsFile file(model_);
    Tensors all = tensors_in(model_);
    std::vector<nn::TensorBytes> tensors;
    for (auto& [name, bytes] : all) {
      if (dtype == DType::kF16) bytes = halves(bytes);
      tensors.push_back({prefix + name, dtype, file.entry(name).shape, bytes});
    }
    const std::int64_t steps = 1;
    tensors.push_back(
        {prefix + "bn1.num_batches_tracked", DType::kI64, {}, std::as_bytes(std::span(&steps, 1))});
    const std::string path = directory_ + "/foreign.safetensors";
    nn::write_safetensors(path, tensors);
    return path;
  }
  static std::vector<std::byte> halves(const std::vector<std::byte>& bytes) {
    std::vector<Float16> values;
    for (const float value : floats_of(bytes)) values.emplace_back(value);
    const auto converted = std::as_bytes(std::span(values));
    return {converted.begin(), converted.end()};
  }

  const std::string model_ = directory_ + "/out/model.safetensors";
};

TEST_F(NetworkFiles, AreNotValidatedAsAnotherNetworkOrWithOtherClasses) {
  std::mt19937 random(7);
  for (const char* name :
       {"ab/train/a/1", "ab/train/b/1", "ab/test/a/1", "ab/test/b/1", "ac/test/a/1", "ac/test/c/1",
        "abc/test/a/1", "abc/test/b/1", "abc/test/c/1"})
    write(std::string(name) + ".png", testing::noise_png(32, random));
  const auto images = [&](const std::string& folder) {
    return std::vector<std::string>{"--set", "data.set=folder", "--set",
                                    "data.directory=" + directory_ + "/" + folder};
  };
  const auto refused = [&](const std::string& folder, const std::string& path,
                           const std::string& more = "train.seed=1") {
    std::vector<std::string> arguments = images(folder);
    arguments.insert(arguments.end(), {"--validate", path, "--set", more});
    return refusal(arguments);
  };
  train(images("ab"));
  EXPECT_THAT(refused("ac", model_),
              HasSubstr(model_ + ": classes: they are not those of the images: number 2 is \"b\" "
                                 "there, \"c\" here"));
  EXPECT_THAT(refused("abc", model_), HasSubstr("of the images: there are 2, here 3"));
  for (const std::string& path : {model_, newest()})
    EXPECT_THAT(refused("ab", path, "model.name=resnet20"),
                HasSubstr(path + ": model.name: it is \"small_cnn\" in this file, \"resnet20\" in "
                                 "the configuration"));
}

TEST_F(NetworkFiles, ValidatedWithOtherImagesThanTheyWereTrainedWithSaySo) {
  train();
  for (const std::string& path : {model_, newest()}) {
    const CompletedProcess same = dtrain(0, {"--validate", path});
    EXPECT_EQ(same.error, "");
    const CompletedProcess other =
        dtrain(0, {"--validate", path, "--set", "data.mean=[0.25, 0.5, 0.5]", "--set",
                   "data.std=[0.5, 0.5, 0.5]"});
    EXPECT_EQ(other.exit_code, kExitOk) << other.error;
    EXPECT_THAT(other.error,
                HasSubstr(path + ": the network was trained with data.mean [0.5,0.5,0.5], here "
                                 "they are [0.25,0.5,0.5]: "));
    EXPECT_THAT(other.error, HasSubstr("data.std [0.25,0.25,0.25], here they are [0.5,0.5,0.5]"));
  }
  std::filesystem::remove_all(directory_ + "/out");
  train({"--set", "model.name=resnet20"});  // which takes images of any size
  const CompletedProcess larger = dtrain(0, {"--validate", model_, "--set", "model.name=resnet20",
                                             "--set", "data.synthetic.height=40"});
  EXPECT_EQ(larger.exit_code, kExitOk) << larger.error;
  EXPECT_THAT(larger.error, HasSubstr("trained with images of (height, width, channels) [32,32,3], "
                                      "here they are [40,32,3]: "));
}

TEST_F(NetworkFiles, OfOtherProgramsAreTaken) {
  train();
  const double loss = validation_loss(model_);
  EXPECT_EQ(validation_loss(foreign("", DType::kF32)), loss);
  EXPECT_EQ(validation_loss(foreign("module.", DType::kF32)), loss);
  EXPECT_NEAR(validation_loss(foreign("_orig_mod.", DType::kF16)), loss, 1e-2);
  const std::string weights = "model.weights=" + foreign("module.", DType::kF16);
  EXPECT_EQ(dtrain(0, {"--set", weights, "--set", "train.max_steps=1", "--set",
                       "output.directory=" + directory_ + "/more"})
                .exit_code,
            kExitOk);
}

TEST_F(NetworkFiles, InCheckpointsCanBeBegunWith) {
  train({"--set", "ema.decay=0.5"});
  const auto begin_with = [&](const std::string& path) {
    EXPECT_EQ(
        dtrain(0, {"--set", "model.weights=" + path, "--set", "optimizer.learning_rate=0", "--set",
                   "output.directory=" + directory_ + "/more", "--set", "train.max_steps=1"})
            .exit_code,
        kExitOk);
    return tensors_in(directory_ + "/more/model.safetensors").at("conv1.weight");
  };
  EXPECT_EQ(begin_with(newest()), begin_with(model_)) << "the average, as in the network's file";
}

TEST_F(NetworkFiles, OfOtherClassesCanBeBegunWithButForTheClassifier) {
  train();
  const std::vector<std::string> others{"--set", "model.weights=" + model_,
                                        "--set", "data.synthetic.classes=7",
                                        "--set", "optimizer.learning_rate=0",
                                        "--set", "train.max_steps=1",
                                        "--set", "output.directory=" + directory_ + "/more"};
  EXPECT_THAT(refusal(others), HasSubstr("]: it is of 4 classes, here are 7; to train on others "
                                         "set model.new_classifier=true"));
  std::vector<std::string> anew = others;
  anew.insert(anew.end(), {"--set", "model.new_classifier=true"});
  const CompletedProcess process = dtrain(0, anew);
  EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  const Tensors there = tensors_in(model_),
                here = tensors_in(directory_ + "/more/model.safetensors");
  EXPECT_EQ(here.at("conv1.weight"), there.at("conv1.weight"));
  EXPECT_THAT(refusal({"--set", "model.new_classifier=true"}, kExitUsage),
              HasSubstr("model.new_classifier: has no effect without model.weights"));
}

TEST_F(NetworkFiles, AreLookedForInAFolder) {
  train();
  const std::string out = directory_ + "/out";
  EXPECT_THAT(refusal({"--validate", out}),
              HasSubstr(out + " is a folder; name a file, as " + model_));
  EXPECT_THAT(refusal({"--set", "model.weights=" + folder()}),
              HasSubstr("dtrain: model.weights: " + folder() + " is a folder; name a file"));
  EXPECT_THAT(refusal({"--set", "model.weights=nosuch"}),
              HasSubstr("dtrain: model.weights: nosuch: No such file or directory"));
  EXPECT_THAT(refusal({"--resume", out, "--set", "output.directory=" + directory_ + "/more"}),
              HasSubstr(out + " is a folder; name a file, as " + newest() + ", or use auto"));
}

// Ranks put their running statistics together for a file or a validation, and go on with their own.
TEST_F(NetworkFiles, AreTheSameHoweverOftenARunIsSavedAndValidated) {
  const auto network = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{
        "--set", "train.sync_batch_norm=false",
        "--set", "train.validate_every=0",
        "--set", "data.synthetic.train_size=140",  // not one in a step
        "--set", "ema.decay=0.5"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CompletedProcess process = dtrain(2, arguments);
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
    return tensors_in(model_);
  };
  const Tensors expected = network({});
  EXPECT_EQ(network({"--set", "checkpoint.every_steps=1"}), expected);
  EXPECT_EQ(network({"--set", "train.validate_every=1"}), expected);
}

}  // namespace
}  // namespace dlaunch
