// Clipped gradients: against the steps of runs that do not clip, on every way that gradients take.
#include <cmath>
#include <utility>
#include <vector>

#include "tests/trainers/device_training.h"

namespace dlaunch::testing {
namespace {

class Clipping : public DeviceTraining {
 protected:
  /// One step without momentum.
  std::vector<float> one_step(double rate, double clip_norm, const char* gradients, On where) {
    return train(
               2, where,
               {{"optimizer", {{"learning_rate", rate}, {"momentum", 0}, {"clip_norm", clip_norm}}},
                {"parallel", {{"gradients", gradients}}},
                {"train", {{"max_steps", 1}}},
                {"output", {{"log_every", 1}}}})
        .parameters;
  }
  double reported_norm() const {
    for (const nlohmann::json& line : metrics())
      if (line.at("event") == "step") return line.at("gradient_norm").get<double>();
    return -1;
  }
};

TEST_F(Clipping, ScalesGradientsByTheirNormOverAllParametersAndRanks) {
  constexpr double kRate = 0.5;
  const std::vector<float> before = one_step(0, 0, "all_reduce", On::kCpu);
  const std::vector<float> after = one_step(kRate, 0, "all_reduce", On::kCpu);
  std::vector<double> gradients;
  double squares = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    gradients.push_back((static_cast<double>(before[i]) - static_cast<double>(after[i])) / kRate);
    squares += gradients.back() * gradients.back();
  }
  const double norm = std::sqrt(squares);
  ASSERT_GT(norm, 0.01);
  EXPECT_NEAR(reported_norm(), norm, 1e-4 * norm);

  for (const char* way : {"all_reduce", "shard"}) {
    for (const On where : {On::kCpu, On::kDevice}) {
      SCOPED_TRACE(way);
      const std::vector<float> clipped = one_step(kRate, norm / 3, way, where);
      EXPECT_NEAR(reported_norm(), norm, 1e-4 * norm) << "that before clipping";
      for (std::size_t i = 0; i < before.size(); ++i)
        ASSERT_NEAR(clipped[i], static_cast<double>(before[i]) - kRate * gradients[i] / 3,
                    1e-6 + 1e-6 * std::abs(gradients[i]));
      const std::vector<float> loose = one_step(kRate, norm * 3, way, where);
      for (std::size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(loose[i], after[i], 1e-6);
    }
  }
}

// The norm is that of one step, however many there were before.
TEST_F(Clipping, AtALimitThatNeverBindsChangesNoStep) {
  for (const On where : {On::kCpu, On::kDevice}) {
    const auto steps = [&](double clip_norm) {
      const Outcome outcome = train(
          2, where, {{"optimizer", {{"clip_norm", clip_norm}}}, {"output", {{"log_every", 1}}}});
      std::vector<double> norms;
      for (const nlohmann::json& line : metrics())
        if (line.at("event") == "step") norms.push_back(line.at("gradient_norm").get<double>());
      return std::pair(norms, outcome.parameters);
    };
    const auto [expected_norms, expected] = steps(0);
    const auto [norms, parameters] = steps(1e6);
    ASSERT_EQ(expected_norms.size(), 10U);
    ASSERT_EQ(norms.size(), expected_norms.size());
    for (std::size_t i = 0; i < norms.size(); ++i)
      EXPECT_NEAR(norms[i], expected_norms[i], 1e-4 * expected_norms[i]) << "step " << i + 1;
    ASSERT_EQ(parameters.size(), expected.size());
    for (std::size_t i = 0; i < parameters.size(); ++i)
      ASSERT_NEAR(parameters[i], expected[i], 1e-6) << i;
  }
}

TEST_F(Clipping, IsRepeatedWithRecordedSteps) {
  const nlohmann::json how = {{"optimizer", {{"clip_norm", 0.05}}}};
  const Outcome cpu = train(2, On::kCpu, how);
  const Outcome directly = train(2, On::kDevice, how);
  const Outcome repeated = train(2, On::kDeviceWithGraphs, how);
  EXPECT_EQ(repeated.repeats, 6);
  EXPECT_EQ(directly.parameters, repeated.parameters);
  EXPECT_EQ(directly.parameters, cpu.parameters);
}

}  // namespace
}  // namespace dlaunch::testing
