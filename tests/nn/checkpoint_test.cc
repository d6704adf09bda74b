// Files of tensors: the safetensors format, atomic writing, and the layouts of torch.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/checkpoint/atomic_file.h"
#include "nn/checkpoint/checkpoint_folder.h"
#include "nn/checkpoint/named_tensors.h"
#include "nn/checkpoint/safetensors.h"
#include "nn/core/error.h"
#include "nn/cpu/cpu_backend.h"
#include "nn/data/dataset.h"
#include "nn/layers/linear.h"
#include "nn/optim/adam.h"
#include "nn/optim/ema.h"
#include "nn/optim/muon.h"
#include "runtime/base/half.h"
#include "runtime/base/temporary_folder.h"

namespace dlaunch::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class CheckpointFiles : public ::testing::Test {
 protected:
  std::string path(const std::string& name = "t.safetensors") const {
    return directory_ + "/" + name;
  }
  void write_file(const std::string& content) const {
    std::ofstream(path(), std::ios::binary) << content;
  }
  std::string read_file() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(directory_))
      all.push_back(entry.path().filename().string());
    return all;
  }
  Tensor tensor(const Shape& shape, const std::vector<float>& values) const {
    return Tensor::from<float>(*backend_, shape, values);
  }

  std::unique_ptr<Backend> backend_ = make_cpu_backend();
  const TemporaryFolder temporary_;
  const std::string directory_ = temporary_.path();
};

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}

/// A file as others write it: a header without checksums, and `data`.
std::string foreign_file(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string text(sizeof length, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  return text + header + data;
}

TEST_F(CheckpointFiles, ReadWhatTheFormatsDescriptionShows) {
  const std::array<float, 2> values{1.5F, -2};
  std::string data(sizeof values, '\0');
  std::memcpy(data.data(), values.data(), sizeof values);
  write_file(foreign_file(R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2],)"
                          R"("data_offsets":[0,8]},"none":{"dtype":"I64","shape":[0,3],)"
                          R"("data_offsets":[8,8]}}  )",
                          data));
  const SafetensorsFile file(path());
  EXPECT_EQ(file.metadata().at("k"), "v");
  EXPECT_EQ(file.tensors().at("none").shape, (Shape{0, 3}));
  const auto bytes = file.read("a");
  EXPECT_EQ(std::memcmp(bytes.data(), values.data(), sizeof values), 0);
}

TEST_F(CheckpointFiles, HaveTheFormatsNamesOfAllTypes) {
  const std::array<std::byte, 16> data{};
  std::vector<TensorBytes> tensors;
  for (const DType dtype : kAllDTypes)
    tensors.push_back({.name = std::string(to_string(dtype)),
                       .dtype = dtype,
                       .shape = {2},
                       .bytes = std::span(data).first(2 * size_of(dtype))});
  write_safetensors(path(), tensors, {});
  const SafetensorsFile file(path());
  for (const DType dtype : kAllDTypes)
    EXPECT_EQ(file.entry(std::string(to_string(dtype))).dtype, dtype) << to_string(dtype);
  for (const char* name : {"F16", "BF16", "F32", "F64", "I8", "I32", "I64", "U8", "U32", "U64"})
    EXPECT_THAT(read_file(), HasSubstr("\"dtype\":\"" + std::string(name) + "\"")) << name;
}

TEST_F(CheckpointFiles, RefuseHeadersThatLieAndNameTheTensor) {
  struct Lie {
    std::string header, why;
  };
  const std::vector<Lie> lies{
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "a: its offsets hold 8 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", "a: there is a gap"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "a: its data_offsets descend"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "a: "},
      {R"({"a":{"dtype":"F32","shape":[2.9],"data_offsets":[0,8]}})", "a: its shape"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", "a: its data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0.5,8]}})", "a: its data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
       "a: shape [4611686018427387904, 4] has too many elements"},
      {R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,0]}})", "a: its shape is impossible"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       "b: there is a gap or an overlap"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "4 bytes too many"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", "a: truncated"},
      {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", "a: damaged"},
      {R"({"a":7})", "a: damaged"},
      {R"([1])", "damaged"},
      {R"({"a":)", "damaged"},
  };
  for (const Lie& lie : lies) {
    write_file(foreign_file(lie.header, std::string(8, 'x')));
    EXPECT_THAT(refusal([&] { SafetensorsFile file(path()); }), HasSubstr(lie.why)) << lie.header;
  }
  for (const std::string& content : {std::string(), std::string(7, '\0'), std::string(64, '\xff'),
                                     std::string("not a tensor in sight")}) {
    write_file(content);
    EXPECT_THAT(refusal([&] { SafetensorsFile file(path()); }), HasSubstr("no safetensors file"));
  }
  EXPECT_THAT(refusal([&] { SafetensorsFile file("/nowhere/x"); }), HasSubstr("No such file"));
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);  // nobody will ever write to it
  EXPECT_EQ(refusal([&] { SafetensorsFile file(path("fifo")); }),
            path("fifo") + ": not a regular file");
}

TEST_F(CheckpointFiles, AreReadBesideTensorsThatCannotBe) {
  write_file(foreign_file(R"({"f8":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]},)"
                          R"("mask":{"dtype":"BOOL","shape":[2],"data_offsets":[4,6]},)"
                          R"("deep":{"dtype":"U8","shape":[1,1,1,1,2],"data_offsets":[6,8]},)"
                          R"("a":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                          std::string(12, '\0')));
  const SafetensorsFile file(path());
  const std::vector<NamedTensor> wanted{{"a", tensor({1}, {5})}};
  load_some_tensors(file, wanted);
  EXPECT_EQ(wanted[0].tensor.item(), 0);
  EXPECT_EQ(refusal([&] { (void)file.read("mask"); }),
            path() + ": mask: its type BOOL is not known here");
  EXPECT_EQ(refusal([&] { (void)file.entry("deep"); }),
            path() + ": deep: it has 5 dimensions; at most 4 are known here");
  // Of those that are no weights a network need not have a counterpart.
  EXPECT_THAT(refusal([&] { load_tensors(file, wanted); }), HasSubstr(": f8: unexpected tensor"));
}

TEST_F(CheckpointFiles, OfOtherFloatingTypesAreConverted) {
  const std::array<Float16, 2> half{Float16(1.5F), Float16(-0.25F)};
  const std::array<BFloat16, 2> brain{BFloat16(3), BFloat16(-1e20F)};
  const std::array<double, 2> wide{0.1, 1e300};
  const std::vector<TensorBytes> tensors{
      {"half", DType::kF16, {2}, std::as_bytes(std::span(half))},
      {"brain", DType::kBF16, {2}, std::as_bytes(std::span(brain))},
      {"wide", DType::kF64, {2}, std::as_bytes(std::span(wide))},
      {"tenth", DType::kF64, {1}, std::as_bytes(std::span(wide).first(1))}};
  write_safetensors(path(), tensors);
  const SafetensorsFile file(path());
  const auto load = [&](const std::string& name, std::int64_t count) {
    const Tensor into = Tensor::zeros(*backend_, {count});
    load_some_tensors(file, std::vector<NamedTensor>{{name, into}});
    return into.host_values<float>();
  };
  EXPECT_THAT(load("half", 2), ElementsAre(1.5F, -0.25F));
  EXPECT_THAT(load("brain", 2), ElementsAre(3, static_cast<float>(BFloat16(-1e20F))));
  EXPECT_THAT(load("tenth", 1), ElementsAre(0.1F));
  EXPECT_EQ(refusal([&] { load("wide", 2); }), path() + ": wide: 1 of 2 numbers are not finite");
}

TEST_F(CheckpointFiles, OfTorchSaveAreRefusedWithTheWayToConvertThem) {
  for (const std::string& begin :
       {std::string("PK\3\4\0\0\x08\x08", 8), std::string("\x80\2\x8a\x0a\x6c\xfc\x9c\x46", 8)}) {
    write_file(begin + std::string(100, 'x'));
    EXPECT_THAT(refusal([&] { SafetensorsFile file(path()); }),
                HasSubstr("a file of torch.save, which is not read here; in Python, write "
                          "safetensors.torch.save_file("));
  }
  write_file(std::string("\x80\2\0\0\0\0\0\0", 8) + "{");  // the length of a header
  EXPECT_THAT(refusal([&] { SafetensorsFile file(path()); }), HasSubstr(": truncated, or no"));
}

TEST_F(CheckpointFiles, WithoutTheChecksumsTheyHadAreDamaged) {
  Snapshot snapshot;
  snapshot.take(std::vector<NamedTensor>{{"a", tensor({2}, {1, 2})}});
  snapshot.write(path(), {{"dlaunch.network", "small"}});
  std::string content = read_file();
  content[content.find("dlaunch.digests") + 3] = 'n';
  write_file(content);
  EXPECT_EQ(refusal([&] { SafetensorsFile file(path()); }),
            path() + ": __metadata__: damaged: dlaunch.network is there, but no checksums");
}

TEST_F(CheckpointFiles, DamagedInAnyBitAreRefusedOrHoldTheSame) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const std::vector<NamedTensor> written{{"layer.weight", tensor({3, 2}, values)},
                                         {"layer.bias", tensor({2}, {7, 8})}};
  Snapshot snapshot;
  snapshot.take(written);
  snapshot.write(path(), {{"place", "epoch 3"}});
  const std::string whole = read_file();
  const auto load = [&] {
    const std::vector<NamedTensor> read{{"layer.weight", tensor({3, 2}, {0, 0, 0, 0, 0, 0})},
                                        {"layer.bias", tensor({2}, {0, 0})}};
    const SafetensorsFile file(path());
    load_tensors(file, read);
    EXPECT_EQ(file.metadata().at("place"), "epoch 3");
    for (std::size_t i = 0; i < read.size(); ++i) {
      const auto expected = written[i].tensor.values<const float>();
      const auto actual = read[i].tensor.values<const float>();
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), actual.begin()));
    }
  };
  load();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    write_file(damaged);
    (void)refusal(load);
    write_file(whole.substr(0, i));
    EXPECT_NE(refusal(load), "accepted") << "cut to " << i << " bytes";
  }
  std::string damaged = whole;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  write_file(damaged);
  EXPECT_THAT(refusal(load), HasSubstr("layer.bias: damaged: wrong checksum"));
}

TEST_F(CheckpointFiles, OfAnotherNetworkAreRefusedWithTheTensorsName) {
  Snapshot snapshot;
  snapshot.take(std::vector<NamedTensor>{{"a", tensor({2}, {1, 2})}});
  snapshot.write(path(), {});
  const auto load = [&](const std::vector<NamedTensor>& wanted) {
    return refusal([&] { load_tensors(SafetensorsFile(path()), wanted); });
  };
  const Tensor fits = tensor({2}, {0, 0});
  EXPECT_THAT(load({{"a", fits}, {"b", fits}}), HasSubstr(": b: not in this file"));
  EXPECT_THAT(load({}), HasSubstr(": a: unexpected tensor: the network has none of this name"));
  EXPECT_THAT(load({{"a", tensor({1, 2}, {0, 0})}}), HasSubstr(": a: shape [2], expected [1, 2]"));
  EXPECT_THAT(load({{"a", Tensor::zeros(*backend_, {2}, DType::kF64)}}),
              HasSubstr(": a: type f32, expected f64"));
}

TEST_F(CheckpointFiles, WithNumbersThatAreNotFiniteAreRefused) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Snapshot snapshot;
  snapshot.take(std::vector<NamedTensor>{
      {"a", tensor({2}, {1, std::numeric_limits<float>::max()})},
      {"b", tensor({5}, {1, infinity, 3, nan, -infinity})},
      {"c", Tensor::from<double>(*backend_, {2},
                                 std::array{1e300, std::numeric_limits<double>::infinity()})}});
  snapshot.write(path(), {});
  const auto load = [&](const std::string& name, const Tensor& wanted) {
    return refusal([&] {
      load_some_tensors(SafetensorsFile(path()), std::vector<NamedTensor>{{name, wanted}});
    });
  };
  EXPECT_EQ(load("a", tensor({2}, {0, 0})), "accepted");
  EXPECT_EQ(load("b", tensor({5}, {0, 0, 0, 0, 0})), path() + ": b: 3 of 5 numbers are not finite");
  EXPECT_EQ(load("c", Tensor::zeros(*backend_, {2}, DType::kF64)),
            path() + ": c: 1 of 2 numbers are not finite");
}

TEST_F(CheckpointFiles, AreNotReadIntoTensorsOfOtherTypes) {
  write_file(
      foreign_file(R"({"odd":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", std::string("5")));
  const std::vector<NamedTensor> odd{{"odd", Tensor::zeros(*backend_, {1}, DType::kU8)}};
  try {
    load_tensors(SafetensorsFile(path()), odd);
    ADD_FAILURE() << "no exception";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("odd: a tensor of u8 cannot be read from a file"));
  }
}

TEST_F(CheckpointFiles, HoldConvolutionWeightsAsTorchHasThem) {
  // [out 2, height 1, width 3, in 2] in memory; [2, 2, 1, 3] in the file.
  const std::vector<float> memory{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const std::vector<float> torch{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11};
  Snapshot snapshot;
  snapshot.take(std::vector<NamedTensor>{{"w", tensor({2, 1, 3, 2}, memory)}});
  snapshot.write(path(), {});
  const SafetensorsFile file(path());
  EXPECT_EQ(file.tensors().at("w").shape, (Shape{2, 2, 1, 3}));
  std::vector<float> stored(12);
  std::memcpy(stored.data(), file.read("w").data(), 48);
  EXPECT_EQ(stored, torch);
  const Tensor back = Tensor::zeros(*backend_, {2, 1, 3, 2});
  load_tensors(file, std::vector<NamedTensor>{{"w", back}});
  const auto values = back.values<const float>();
  EXPECT_EQ(std::vector<float>(values.begin(), values.end()), memory);
}

TEST_F(CheckpointFiles, HoldWeightsBehindAFlattenedImageAsTorchHasThem) {
  // Of 3 outputs, an image of 2 x 3 pixels, 4 channels: torch flattens channel by channel.
  constexpr std::size_t kOut = 3, kPixels = 6, kChannels = 4;
  Generator generator(1);
  Linear layer(*backend_, kPixels * kChannels, kOut, generator,
               {.bias = false, .image_channels = kChannels});
  const FlatParameters flat = flatten_parameters(layer);
  std::vector<float> memory(kOut * kPixels * kChannels), torch(memory.size());
  for (std::size_t o = 0; o < kOut; ++o)
    for (std::size_t p = 0; p < kPixels; ++p)
      for (std::size_t c = 0; c < kChannels; ++c) {
        const float value = static_cast<float>(100 * o + 10 * p + c);
        memory[(o * kPixels + p) * kChannels + c] = value;
        torch[(o * kChannels + c) * kPixels + p] = value;
      }
  flat.views[0].parameter.set_values<float>(memory);

  // The averages and the state of optimizers go with the weights, as those of filters do.
  std::vector<NamedTensor> all = state_of(layer);
  const Ema ema(all, 0.9);
  for (NamedTensor item : ema.averages()) {
    item.name = "ema." + item.name;
    all.push_back(item);
  }
  const Muon muon(flat, {.others = {.momentum = 0.9}});
  const Sgd sgd(flat, {.momentum = 0.9});
  const Adam adam(flat, {});
  for (const Optimizer* optimizer :
       {static_cast<const Optimizer*>(&muon), static_cast<const Optimizer*>(&sgd),
        static_cast<const Optimizer*>(&adam)})
    for (NamedTensor item : optimizer->state()) {
      if (item.tensor.size() == flat.views[0].count) item.tensor.set_values<float>(memory);
      item.name = std::to_string(all.size()) + item.name;
      all.push_back(item);
    }
  Snapshot snapshot;
  snapshot.take(all);
  snapshot.write(path(), {});

  const SafetensorsFile file(path());
  EXPECT_EQ(all.size(), 7U);  // the weights, their average, and 1 + 1 + 3 of optimizers
  for (const NamedTensor& item : all) {
    if (item.tensor.size() == 1) continue;  // Adam's steps
    EXPECT_EQ(file.tensors().at(item.name).shape, (Shape{kOut, kPixels * kChannels}));
    std::vector<float> stored(torch.size());
    std::memcpy(stored.data(), file.read(item.name).data(), stored.size() * sizeof(float));
    EXPECT_EQ(stored, torch) << item.name;
    item.tensor.set_values<float>(std::vector<float>(memory.size()));
  }
  load_tensors(file, all);
  for (const NamedTensor& item : all)
    if (item.tensor.size() > 1) {
      EXPECT_EQ(item.tensor.host_values<float>(), memory) << item.name;
    }

  EXPECT_THROW(Linear(*backend_, 10, kOut, generator, {.image_channels = 4}), Error);
}

TEST_F(CheckpointFiles, ReplaceTheOldOnlyAsAWhole) {
  write_file("old");
  {
    AtomicFile file(path());
    file.write(std::as_bytes(std::span("new content")));
    EXPECT_EQ(read_file(), "old");
  }
  EXPECT_EQ(read_file(), "old");
  EXPECT_THAT(names(), ElementsAre("t.safetensors"));
  AtomicFile file(path());
  file.write(std::as_bytes(std::span("new", 3)));
  file.commit();
  EXPECT_EQ(read_file(), "new");
  EXPECT_THROW(AtomicFile("/nowhere/x"), std::runtime_error);
}

TEST_F(CheckpointFiles, ThatDoNotFitOnTheDiskLeaveTheOldOneAlone) {
  write_file("old");
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct sigaction ignore {
  }, action_before{};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(sigaction(SIGXFSZ, &ignore, &action_before), 0);
  const struct rlimit small { 100, before.rlim_max };
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Snapshot snapshot;
  snapshot.take(std::vector<NamedTensor>{{"w", Tensor::zeros(*backend_, {1000})}});
  EXPECT_THROW(snapshot.write(path(), {}), std::runtime_error);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_EQ(sigaction(SIGXFSZ, &action_before, nullptr), 0);
  EXPECT_EQ(read_file(), "old");
  EXPECT_THAT(names(), ElementsAre("t.safetensors"));
}

/// While it lives the process has not root's rights.
class WithoutRoot {
 public:
  explicit WithoutRoot(const std::string& own_folder) {
    if (!is_root_) return;
    EXPECT_EQ(::chown(own_folder.c_str(), kNobody, kNobody), 0);
    EXPECT_EQ(::seteuid(kNobody), 0);
  }
  ~WithoutRoot() { EXPECT_TRUE(!is_root_ || ::seteuid(0) == 0); }
  WithoutRoot(const WithoutRoot&) = delete;
  WithoutRoot& operator=(const WithoutRoot&) = delete;

 private:
  static constexpr uid_t kNobody = 65534;
  const bool is_root_ = ::geteuid() == 0;
};

TEST_F(CheckpointFiles, AreWrittenToAFolderThatMustNotBeRead) {
  fs::permissions(directory_,
                  fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
  fs::create_directory(path("closed"));
  fs::permissions(path("closed"), fs::perms::owner_write | fs::perms::owner_exec);
  {
    const WithoutRoot nobody(path("closed"));
    write_safetensors(path("closed/t.safetensors"), {});
    EXPECT_THAT(refusal([&] { (void)CheckpointFolder(path("closed")).list(); }),
                HasSubstr("/closed: cannot be read: Permission denied"));
  }
  fs::permissions(path("closed"), fs::perms::owner_all);
  EXPECT_TRUE(fs::exists(path("closed/t.safetensors")));
}

TEST_F(CheckpointFiles, AreRefusedByAFolderInWhichNoneCanBeMade) {
  const auto error_of = [](const std::string& folder) -> std::string {
    try {
      CheckpointFolder(folder).prepare();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  fs::permissions(directory_,
                  fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
  fs::create_directory(path("fixed"));
  EXPECT_EQ(error_of(path("fixed")), "");
  fs::permissions(path("fixed"), fs::perms::owner_read | fs::perms::owner_exec);
  const WithoutRoot nobody(path("fixed"));
  EXPECT_EQ(error_of(path("fixed")), "cannot write to " + path("fixed") + ": Permission denied");
}

TEST_F(CheckpointFiles, LeftoversOfOneAreRemovedAndNothingElse) {
  for (const char* name :
       {"best.safetensors.partial-17", "best.safetensors.partial-18", "best.safetensors",
        "notes.partial-17", "best.safetensors.partial-", "best.safetensors.partial-17.txt"})
    std::ofstream(path(name)) << "x";
  AtomicFile::remove_leftovers(directory_,
                               [](std::string_view name) { return name == "best.safetensors"; });
  EXPECT_THAT(names(), ::testing::UnorderedElementsAre("best.safetensors", "notes.partial-17",
                                                       "best.safetensors.partial-",
                                                       "best.safetensors.partial-17.txt"));
}

TEST_F(CheckpointFiles, InAFolderThatCannotBeReadAreNotTakenForNone) {
  EXPECT_TRUE(CheckpointFolder(directory_ + "/nowhere").list().empty());
  write_file("no folder");
  EXPECT_TRUE(CheckpointFolder(path()).list().empty());
  fs::create_directory_symlink("loop", directory_ + "/loop");  // root may read all that can be read
  EXPECT_THAT(refusal([&] { (void)CheckpointFolder(directory_ + "/loop").list(); }),
              HasSubstr(directory_ + "/loop: cannot be read: Too many levels"));
}

TEST_F(CheckpointFiles, AreListedByStepAndLeftoversAreRemoved) {
  const CheckpointFolder folder(directory_ + "/checkpoints");
  EXPECT_TRUE(folder.list().empty());
  folder.prepare();
  for (const std::uint64_t step : {7U, 123456789U, 20U}) std::ofstream(folder.path_of(step)) << "x";
  std::ofstream(folder.path_of(30) + ".partial-17") << "x";
  const std::vector<std::string> others{"notes.txt", "notes.partial-17",
                                        "step-31.safetensors.partial-old"};
  for (const std::string& name : others) std::ofstream(folder.directory() + "/" + name) << "x";
  fs::create_directory(folder.path_of(32) + ".partial-17");
  folder.prepare();
  folder.keep_newest(2);
  const auto left = folder.list();
  ASSERT_EQ(left.size(), 2U);
  EXPECT_EQ(left[0].step, 20U);
  EXPECT_EQ(left[1].step, 123456789U);
  for (const std::string& name : others)
    EXPECT_TRUE(fs::exists(folder.directory() + "/" + name)) << name;
  EXPECT_TRUE(fs::exists(folder.path_of(32) + ".partial-17")) << "a folder is nobody's leftover";
  EXPECT_FALSE(fs::exists(folder.path_of(30) + ".partial-17"));
}

TEST_F(CheckpointFiles, MakeRoomFromTheOldestOnButTheNewestStays) {
  const CheckpointFolder folder(directory_);
  const auto steps = [&] {
    std::vector<std::uint64_t> all;
    for (const CheckpointFile& file : folder.list()) all.push_back(file.step);
    return all;
  };
  EXPECT_EQ(folder.remove_oldest(), "");
  for (const std::uint64_t step : {3U, 7U, 11U, 20U}) std::ofstream(folder.path_of(step)) << "x";
  EXPECT_EQ(folder.remove_oldest(3), folder.path_of(7));  // 3 is another run's
  EXPECT_EQ(folder.remove_oldest(3), folder.path_of(11));
  EXPECT_EQ(folder.remove_oldest(3), "");
  EXPECT_THAT(steps(), ElementsAre(3, 20));
  EXPECT_EQ(folder.remove_oldest(), folder.path_of(3));
  EXPECT_EQ(folder.remove_oldest(), "");
  EXPECT_THAT(steps(), ElementsAre(20));
}

}  // namespace
}  // namespace dlaunch::nn
