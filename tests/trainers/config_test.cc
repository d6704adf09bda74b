#include "trainers/config/config.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/cuda/cuda_backend.h"
#include "runtime/base/json_reader.h"
#include "runtime/base/temporary_folder.h"

namespace dlaunch {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TrainConfig read(const std::string& text) {
  return read_train_config(parse_json(text, "c.json"), "c.json");
}

std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TrainConfig, HasADefaultForEverythingAndReadsItsOwnOutput) {
  const TrainConfig config = read("{}");
  EXPECT_EQ(config.model, "small_cnn");
  EXPECT_EQ(config.data.directory, "data/cifar-100-binary");
  EXPECT_EQ(config.output_directory, "runs/c");
  EXPECT_EQ(config.batch_size_per_rank, 32U);
  EXPECT_EQ(read(config.resolved.dump()).resolved, config.resolved);
}

TEST(TrainConfig, PutsFilesIntoTheOutputFolderUnlessTheyAreNamedAbsolutely) {
  const TrainConfig config = read(R"({"output": {"directory": "out/"}})");
  EXPECT_EQ(config.output_path("tensorboard"), "out/tensorboard");
  EXPECT_EQ(config.output_path("/logs/tensorboard"), "/logs/tensorboard");
}

TEST(TrainConfig, TakesDefaultsFromTheDataSet) {
  EXPECT_EQ(read(R"({"data": {"set": "cifar-10"}})").data.directory, "data/cifar-10-batches-bin");
  EXPECT_NE(read(R"({"data": {"set": "cifar-10"}})").data.normalization.mean,
            read("{}").data.normalization.mean);
}

TEST(TrainConfig, CountsTheSamplesOfAStep) {
  EXPECT_EQ(read(R"({"train": {"accumulation_steps": 2}})").samples_per_step(3), 192U);
  const TrainConfig global =
      read(R"({"train": {"global_batch_size": 100, "accumulation_steps": 4}})");
  EXPECT_EQ(global.samples_per_step(2), 100U);
  EXPECT_EQ(global.samples_per_step(25), 100U);
  try {
    (void)global.samples_per_step(26);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("train.global_batch_size: 100 is less than 26 ranks with 4 "
                                        "accumulation steps need; allowed: at least 104"));
  }
}

TEST(TrainConfig, ScalesLossesByDefaultWithFp16Only) {
  const auto scaling = [](const char* train) {
    return read(R"({"train": )" + std::string(train) + "}").loss_scaling;
  };
  EXPECT_FALSE(scaling("{}").enabled);
  EXPECT_FALSE(scaling(R"({"compute_type": "bf16"})").enabled);
  EXPECT_FALSE(scaling(R"({"compute_type": "fp16", "loss_scaling": "none"})").enabled);
  const LossScaling standard = scaling(R"({"compute_type": "fp16"})");
  EXPECT_TRUE(standard.enabled && !standard.fixed);
  EXPECT_EQ(standard.scale, 65536);
  EXPECT_EQ(standard.growth_steps, 2000U);
  const LossScaling fixed = scaling(R"({"loss_scaling": "fixed", "loss_scale": 128})");
  EXPECT_TRUE(fixed.enabled && fixed.fixed);
  EXPECT_EQ(fixed.scale, 128);
  EXPECT_THAT(refusal(R"({"train": {"loss_scale": 0.5}})"), HasSubstr("train.loss_scale"));
  EXPECT_THAT(refusal(R"({"train": {"loss_scaling": "static"}})"), HasSubstr("\"dynamic\""));
}

TEST(TrainConfig, RefusesWhatCannotBe) {
  EXPECT_THAT(
      refusal(R"({"train": {"optimzer": 1}})"),
      StartsWith("c.json: train.optimzer: unknown key; allowed: epochs, global_batch_size"));
  EXPECT_EQ(refusal(R"({"optimzer": {}})"),
            "c.json: optimzer: unknown key; did you mean optimizer?");
  EXPECT_EQ(refusal(R"({"train": {"epocs": 3}})"),
            "c.json: train.epocs: unknown key; did you mean train.epochs?");
  EXPECT_THAT(refusal(R"({"model": {"name": "resnet19"}})"),
              HasSubstr("did you mean \"resnet18\""));
  if (!nn::built_with_cuda()) {
    EXPECT_THAT(refusal(R"({"train": {"device": "cuda"}})"), HasSubstr("this build has no CUDA"));
  }
  EXPECT_THAT(refusal(R"({"train": {"compute_type": "fp8"}})"), HasSubstr("bf16"));
  EXPECT_THAT(
      refusal(R"({"train": {"global_batch_size": 8, "batch_size_per_rank": 4}})"),
      HasSubstr("train.global_batch_size: train.batch_size_per_rank is 4 too: --set "
                "train.global_batch_size=0 or train.batch_size_per_rank=0, whichever is not "
                "meant"));
  EXPECT_EQ(refusal(R"({"train": {"global_batch_size": 8, "batch_size_per_rank": 0}})"),
            "accepted");
  EXPECT_THAT(refusal(R"({"train": {"batch_size_per_rank": 0}})"), HasSubstr("found 0"));
  EXPECT_THAT(refusal(R"({"optimizer": {"momentum": 1}})"), HasSubstr("below 1"));
  EXPECT_THAT(refusal(R"({"optimizer": {"momentum": 0, "nesterov": true}})"),
              HasSubstr("needs a momentum"));
  EXPECT_THAT(refusal(R"({"schedule": {"name": "multi_step", "milestones": [3, 2]}})"),
              HasSubstr("they must ascend"));
  for (const char* milestones : {"", R"(, "milestones": [])"})
    EXPECT_THAT(refusal(R"({"schedule": {"name": "multi_step")" + std::string(milestones) + "}}"),
                HasSubstr("schedule.milestones: a multi_step schedule needs milestones"));
  EXPECT_THAT(refusal(R"({"schedule": {"name": "piecewise_linear"}})"), HasSubstr("needs points"));
  EXPECT_THAT(refusal(R"({"schedule": {"name": "piecewise_linear",
      "point_epochs": [1], "point_factors": []}})"),
              HasSubstr("0 factors for 1 point_epochs"));
  EXPECT_THAT(refusal(R"({"data": {"std": [1, 0, 1]}})"), HasSubstr("found 0; allowed: an array"));
  EXPECT_THAT(refusal(R"({"data": {"mean": [1, 1]}})"), HasSubstr("three numbers"));
  EXPECT_THAT(refusal(R"({"data": {"mean": [125, 125, 125]}})"), HasSubstr("at most 1"));
  EXPECT_THAT(refusal(R"({"data": {"directory": ""}})"), HasSubstr("allowed: a folder"));
  // What is another number as a float.
  EXPECT_THAT(refusal(R"({"optimizer": {"name": "adam", "eps": 1e-300}})"), HasSubstr("at least"));
  EXPECT_THAT(refusal(R"({"ema": {"decay": 0.9999999999999999}})"), HasSubstr("at most 0.9999999"));
  EXPECT_THAT(refusal(R"({"data": {"image_size": [32, 32]}})"), HasSubstr("only data.set"));
}

TEST(TrainConfig, ReadsHowImagesAreAugmented) {
  const DataConfig data = read(R"({"data": {"crop_scope": "batch", "flip": true,
      "flip_mode": "alternating", "brightness": 0.2, "contrast": 0.1,
      "resize_sides": [20, 24], "resize_until": [1.5, 4]}})")
                              .data;
  EXPECT_TRUE(data.augmentation.crop_batch);
  EXPECT_EQ(data.augmentation.flip, nn::FlipMode::kAlternating);
  EXPECT_EQ(data.augmentation.brightness, 0.2);
  EXPECT_EQ(data.augmentation.contrast, 0.1);
  ASSERT_EQ(data.resize.size(), 2U);
  EXPECT_EQ(data.resize[1].side, 24U);
  EXPECT_EQ(data.resize[1].until_epochs, 4);
  EXPECT_EQ(read(R"({"data": {"flip": false, "flip_mode": "first_half"}})").data.augmentation.flip,
            nn::FlipMode::kNone);
  EXPECT_THAT(refusal(R"({"data": {"resize_sides": [20], "resize_until": []}})"),
              HasSubstr("data.resize_until: 1 resize_sides need as many resize_until, not 0"));
  EXPECT_THAT(refusal(R"({"data": {"resize_sides": [20, 24]}})"),
              HasSubstr("data.resize_sides: 2 resize_sides need as many resize_until, not 0"));
  EXPECT_THAT(refusal(R"({"data": {"resize_sides": [20, 24], "resize_until": [2, 1]}})"),
              HasSubstr("they must ascend"));
  EXPECT_THAT(refusal(R"({"data": {"flip": true, "flip_mode": "half"}})"), HasSubstr("first_half"));
  EXPECT_THAT(refusal(R"({"data": {"contrast": 2}})"), HasSubstr("data.contrast"));
  EXPECT_THAT(refusal(R"({"train": {"validation_views": "both"}})"), HasSubstr("mirror_shift"));
}

TEST(TrainConfig, NamesTheFilesThatTrainingLeaves) {
  const auto files = [](const std::string& json) { return read(json).describe_files(); };
  EXPECT_EQ(files("{}"), "runs/c: metrics.jsonl, tensorboard, model.safetensors");
  EXPECT_EQ(files(R"({"output": {"trace": "t.json", "metrics": "/m.jsonl", "tensorboard": ""},
                      "checkpoint": {"every_epochs": 1, "keep_best": true}})"),
            "runs/c: checkpoints, model.safetensors, best.safetensors; /m.jsonl; t.json");
  EXPECT_EQ(files(R"({"output": {"metrics": "", "tensorboard": ""}})"),
            "runs/c: model.safetensors");
  EXPECT_EQ(files(R"({"output": {"metrics": "", "tensorboard": ""},
                      "checkpoint": {"final": false}})"),
            "");
  LostFiles lost;
  lost.add("metrics.jsonl", "the disk is full");
  lost.add("t.json", "too");
  EXPECT_EQ(lost.why(), "the disk is full; too");
  EXPECT_EQ(read(R"({"output": {"trace": "t.json"}})").describe_files(lost),
            "runs/c: tensorboard, model.safetensors");
}

TEST(TrainConfig, KnowsWhatAGpuIsCalledHere) {
  EXPECT_THAT(refusal(R"({"train": {"device": "gpu"}})"),
              HasSubstr("found \"gpu\"; allowed: \"cpu\", \"cuda\"; did you mean \"cuda\"?"));
}

TEST(TrainConfig, RefusesFilesThatWouldReplaceEachOther) {
  const TemporaryFolder folder;
  const auto with = [&](const std::string& keys) {
    return refusal(R"({"output": {"directory": ")" + folder.path() + R"(/a", )" + keys + "}}");
  };
  const std::string out = folder.path() + "/a/";
  EXPECT_THAT(with(R"("metrics": "x", "trace": ")" + out + R"(x")"),
              HasSubstr("output.trace: " + out + "x is output.metrics too; name another one"));
  EXPECT_THAT(with(R"("metrics": "model.safetensors")"),
              HasSubstr("output.metrics: " + out +
                        "model.safetensors is the name of the network at the end"));
  EXPECT_THAT(with(R"("metrics": "./b/../best.safetensors")"),
              HasSubstr(" is the name of the best network "));
  EXPECT_THAT(with(R"("tensorboard": "checkpoints/")"), HasSubstr(" is the folder of checkpoints"));
  std::filesystem::create_directory(out);
  std::filesystem::create_directory_symlink(folder.path() + "/a", folder.path() + "/link");
  EXPECT_THAT(with(R"("tensorboard": "m", "metrics": ")" + folder.path() + R"(/link/m")"),
              HasSubstr("output.tensorboard: " + out + "m is output.metrics too"));
  EXPECT_THAT(with(R"("trace": "c.json")"), HasSubstr("c.json is the configuration too"));
  EXPECT_THAT(refusal(R"({"model": {"weights": "w"}, "output": {"trace": "./w"}})"),
              HasSubstr("output.trace: ./w is model.weights too"));
  EXPECT_EQ(read(R"({"output": {"metrics": "/dev/null", "trace": "/dev/null"}})").trace.file,
            "/dev/null");
}

TEST(TrainConfig, RefusesKeysThatWouldChangeNothing) {
  EXPECT_THAT(refusal(R"({"schedule": {"milestones": [0.25, 0.5]}})"),
              HasSubstr("schedule.milestones: has no effect unless schedule.name is "
                        "\"multi_step\", found \"constant\""));
  for (const auto& [key, name] : {std::pair{"\"gamma\": 0.1", "multi_step"},
                                  std::pair{"\"point_epochs\": [1]", "piecewise_linear"},
                                  std::pair{"\"point_factors\": [1]", "piecewise_linear"}})
    EXPECT_THAT(refusal(R"({"schedule": {"name": "cosine", )" + std::string(key) + "}}"),
                HasSubstr("found \"cosine\"; add --set schedule.name=" + std::string(name) +
                          ", or replace the section: --set 'schedule={\"name\": \"cosine\"}'"));
  EXPECT_THAT(refusal(R"({"schedule": {"name": "multi_step", "final_factor": 0.1}})"),
              HasSubstr("schedule.final_factor: has no effect"));
  EXPECT_THAT(refusal(R"({"schedule": {"warmup_start_factor": 0.1}})"),
              HasSubstr("schedule.warmup_start_factor: has no effect without schedule.warmup_"));
  EXPECT_THAT(refusal(R"({"optimizer": {"beta1": 0.9}})"),
              HasSubstr("optimizer.beta1: has no effect unless optimizer.name is \"adam\" or "
                        "\"adamw\", found \"sgd\"; add --set optimizer.name=adam, or replace the "
                        "section: --set 'optimizer={\"name\": \"sgd\"}'"));
  EXPECT_THAT(refusal(R"({"optimizer": {"iterations": 3}})"),
              HasSubstr("optimizer.iterations: has no effect unless optimizer.name is \"muon\""));
  EXPECT_THAT(refusal(R"({"data": {"flip_mode": "alternating"}})"),
              HasSubstr("data.flip_mode: has no effect without data.flip"));
  EXPECT_THAT(refusal(R"({"data": {"mix": "mixup", "mix_alpha": 1e-11}})"),
              HasSubstr("data.mix_alpha"));
  EXPECT_THAT(refusal(R"({"output": {"directory": ""}})"),
              HasSubstr("output.directory: allowed: a folder"));
  EXPECT_THAT(refusal(R"({"model": {"name": "resnet_bag_of_tricks"},
                          "train": {"sync_batch_norm": true}})"),
              HasSubstr("train.sync_batch_norm: resnet_bag_of_tricks has no batch norm over all"));
  EXPECT_FALSE(read(R"({"model": {"name": "resnet_bag_of_tricks"}})").sync_batch_norm);
  EXPECT_THAT(refusal(R"({"data": {"mix_alpha": 0.2}})"),
              HasSubstr("data.mix_alpha: has no effect without data.mix"));
  for (const char* schedule :
       {R"("constant")", R"("multi_step", "milestones": [1])", R"("cosine")"}) {
    const TrainConfig config = read(R"({"schedule": {"name": )" + std::string(schedule) + "}}");
    EXPECT_EQ(read(config.resolved.dump()).resolved, config.resolved);
  }
}

TEST(TrainConfig, TheStemsBiasMayHaveAScheduleOfItsOwn) {
  const char* const kText = R"({"optimizer": {"learning_rate": 0.5}, "schedule":
      {"name": "piecewise_linear", "point_epochs": [0, 8], "point_factors": [1, 0],
       "stem_epochs": %}})";
  const auto rate = [&](const std::string& epochs, double progress) {
    std::string text = kText;
    return read(text.replace(text.find('%'), 1, epochs)).stem_learning_rate()(progress);
  };
  EXPECT_NEAR(rate("3", 1.5), 0.25, 1e-12);
  EXPECT_EQ(rate("3", 3), 0);
  EXPECT_EQ(rate("3", 5), 0);
  EXPECT_NEAR(rate("0", 4), 0.25, 1e-12);
}

TEST(TrainConfig, ReadsEveryOptimizer) {
  const TrainConfig sgd = read(R"({"optimizer": {"weight_decay": 0.5, "bias_weight_decay": 0.1,
      "decay_weights_only": true, "bias_learning_rate_factor": 64}})");
  const auto& options = std::get<nn::SgdOptions>(sgd.optimizer);
  EXPECT_EQ(options.weight_decay.weight, 0.5);
  EXPECT_EQ(options.weight_decay.bias, 0.1);
  EXPECT_EQ(options.weight_decay.norm, 0);
  EXPECT_EQ(options.rate_factors.bias, 64);
  const TrainConfig adam = read(R"({"optimizer": {"name": "adamw", "beta2": 0.9}})");
  EXPECT_EQ(std::get<nn::AdamOptions>(adam.optimizer).beta2, 0.9);
  EXPECT_TRUE(std::get<nn::AdamOptions>(adam.optimizer).decoupled_decay);
  EXPECT_EQ(adam.schedule.learning_rate, 0.001);
  const TrainConfig muon = read(R"({"optimizer": {"name": "muon", "scale": "normalise"}})");
  EXPECT_EQ(std::get<nn::MuonOptions>(muon.optimizer).scale, nn::MuonScale::kNormalise);
  const TrainConfig apart = read(R"({"optimizer": {"name": "muon", "weight_decay": 0.25,
      "others_weight_decay": 0.125, "iteration_type": "bf16"}})");
  EXPECT_EQ(std::get<nn::MuonOptions>(apart.optimizer).weight_decay, 0.25);
  EXPECT_EQ(std::get<nn::MuonOptions>(apart.optimizer).others.weight_decay.weight, 0.125);
  EXPECT_TRUE(std::get<nn::MuonOptions>(apart.optimizer).bf16);
  const TrainConfig all = read(R"({"optimizer": {"name": "muon", "weight_decay": 0.0625,
      "norm_weight_decay": 0.25, "bias_weight_decay": 0.5, "norm_learning_rate_factor": 5,
      "bias_learning_rate_factor": 7, "others_momentum": 0.75, "others_learning_rate_factor": 3}})");
  const auto& muons = std::get<nn::MuonOptions>(all.optimizer);
  EXPECT_EQ(muons.momentum, 0.95);
  EXPECT_EQ(muons.weight_decay, 0.0625);
  EXPECT_EQ(muons.others.weight_decay.weight, 0.0625);
  EXPECT_EQ(muons.others.weight_decay.norm, 0.25);
  EXPECT_EQ(muons.others.weight_decay.bias, 0.5);
  EXPECT_EQ(muons.others.rate_factors.norm, 5);
  EXPECT_EQ(muons.others.rate_factors.bias, 7);
  EXPECT_EQ(muons.others.momentum, 0.75);
  EXPECT_EQ(muons.others_factor, 3);
  EXPECT_THAT(refusal(R"({"optimizer": {"name": "adam", "momentum": 0.9}})"),
              HasSubstr("optimizer.momentum: has no effect unless optimizer.name is \"sgd\" or "
                        "\"muon\", found \"adam\""));
  EXPECT_EQ(read(muon.resolved.dump()).resolved, muon.resolved);
}

TEST(TrainConfig, MakesTheLearningRateItDescribes) {
  const auto multi_step = read(R"({"optimizer": {"learning_rate": 0.8},
      "schedule": {"name": "multi_step", "milestones": [2, 4], "gamma": 0.5}})")
                              .learning_rate();
  EXPECT_DOUBLE_EQ(multi_step(1.9), 0.8);
  EXPECT_DOUBLE_EQ(multi_step(2), 0.4);
  EXPECT_DOUBLE_EQ(multi_step(5), 0.2);
  const auto cosine = read(R"({"optimizer": {"learning_rate": 1}, "train": {"epochs": 10},
      "schedule": {"name": "cosine", "final_factor": 0.5, "warmup_epochs": 2}})")
                          .learning_rate();
  EXPECT_DOUBLE_EQ(cosine(0), 0.01);  // not 0, at which a step would change nothing
  EXPECT_DOUBLE_EQ(cosine(1), 0.505);
  EXPECT_DOUBLE_EQ(cosine(2), 1);  // the whole cosine comes after the warm-up
  EXPECT_DOUBLE_EQ(cosine(6), 0.75);
  EXPECT_DOUBLE_EQ(cosine(10), 0.5);
  const auto never = read(R"({"optimizer": {"learning_rate": 1}, "train": {"epochs": 2},
      "schedule": {"name": "cosine", "warmup_epochs": 4}})")
                         .learning_rate();
  EXPECT_DOUBLE_EQ(never(1), 0.2575);
  const auto from_half = read(R"({"optimizer": {"learning_rate": 2}, "schedule": {
      "warmup_epochs": 4, "warmup_start_factor": 0.5}})")
                             .learning_rate();
  EXPECT_DOUBLE_EQ(from_half(0), 1);
  EXPECT_DOUBLE_EQ(from_half(2), 1.5);
  EXPECT_DOUBLE_EQ(from_half(5), 2);
  const auto lines = read(R"({"optimizer": {"learning_rate": 2}, "schedule": {
      "name": "piecewise_linear", "point_epochs": [0, 2, 10], "point_factors": [0, 1, 0]}})")
                         .learning_rate();
  EXPECT_DOUBLE_EQ(lines(1), 1);
  EXPECT_DOUBLE_EQ(lines(6), 1);
}

TEST(TrainConfig, SaysWhatOfTheScheduleIsNeverReached) {
  const auto remark = [](const std::string& schedule) {
    return read(R"({"train": {"epochs": 4}, "schedule": )" + schedule + "}").schedule_remark();
  };
  EXPECT_EQ(remark(R"({"name": "cosine", "warmup_epochs": 4})"),
            "schedule.warmup_epochs 4 covers all of train.epochs 4: the cosine never begins");
  EXPECT_EQ(remark(R"({"warmup_epochs": 4.5})"),
            "schedule.warmup_epochs 4.5 covers all of train.epochs 4: the learning rate never "
            "reaches its full value");
  EXPECT_EQ(remark(R"({"name": "multi_step", "milestones": [2, 4, 6]})"),
            "schedule.milestones 4, 6: not reached in train.epochs 4");
  EXPECT_EQ(remark(R"({"name": "piecewise_linear", "point_epochs": [0, 4, 5],
                       "point_factors": [0, 1, 0]})"),
            "schedule.point_epochs 5: not reached in train.epochs 4");
  for (const char* whole :
       {"{}", R"({"name": "cosine", "warmup_epochs": 3.5})",
        R"({"name": "multi_step", "milestones": [3.9]})",
        R"({"name": "piecewise_linear", "point_epochs": [0, 4], "point_factors": [1, 0]})"})
    EXPECT_EQ(remark(whole), "");
}

TEST(TrainConfig, AcceptsTheConfigurationsOfTheProject) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SOURCE_ROOT "/configs")) {
    SCOPED_TRACE(entry.path());
    EXPECT_NO_THROW(load_train_config(entry.path(), {"train.epochs=1"}));
    ++count;
  }
  EXPECT_GE(count, 5U);
}

}  // namespace
}  // namespace dlaunch
