#include "nn/models/model.h"

#include <functional>

#include "nn/models/bag_of_tricks.h"
#include "nn/models/resnet.h"
#include "nn/models/small_cnn.h"
#include "nn/models/speedrun.h"

namespace dlaunch::nn {
namespace {

struct NamedModel {
  std::string name;
  std::function<std::unique_ptr<Module>(const ModelBuilder&)> make;
};

NamedModel cifar_resnet(int depth) {
  const int blocks = (depth - 2) / 6;
  return {"resnet" + std::to_string(depth), [blocks](const ModelBuilder& builder) {
            return make_resnet(builder, {{16, blocks}, {32, blocks}, {64, blocks}});
          }};
}

std::unique_ptr<Module> make_resnet18(const ModelBuilder& builder, ResNetStem stem) {
  return make_resnet(builder, {{64, 2}, {128, 2}, {256, 2}, {512, 2}}, stem);
}

std::vector<NamedModel> all_models() {
  return {
      {"small_cnn", make_small_cnn},
      cifar_resnet(20),
      cifar_resnet(32),
      cifar_resnet(44),
      cifar_resnet(56),
      {"resnet18",
       [](const ModelBuilder& builder) {
         return make_resnet18(builder, ResNetStem::kSmallImages);
       }},
      {"resnet18_imagenet",
       [](const ModelBuilder& builder) { return make_resnet18(builder, ResNetStem::kImageNet); }},
      {"resnet_bag_of_tricks", make_resnet_bag_of_tricks},
      {"airbench94", make_airbench94},
      {"speedrun100", make_speedrun100}};
}

void check(const ModelOptions& options) {
  if (options.num_classes < 1) throw Error("a model needs at least one class");
  if (options.height < 1 || options.width < 1 || options.channels < 1) {
    throw Error("a model needs images of at least one pixel and channel");
  }
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const NamedModel& model : all_models()) names.push_back(model.name);
  return names;
}

std::unique_ptr<Module> make_model(const std::string& name, const ModelOptions& options,
                                   Backend& backend, Generator& generator, Communicator* group) {
  check(options);
  std::string known;
  for (const NamedModel& model : all_models()) {
    if (model.name == name) return model.make({options, backend, generator, group});
    known += (known.empty() ? "" : ", ") + model.name;
  }
  throw Error("there is no model \"" + name + "\"; there are " + known);
}

}  // namespace dlaunch::nn
