#include "runtime/base/json_reader.h"
#include "runtime/base/nearest_name.h"
#include "runtime/base/temporary_folder.h"

#include <cstdio>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace dlaunch {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// The message of the ConfigError that `action` throws, or "" if it throws none.
template <typename Action>
std::string refusal(Action&& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// A small configuration as a program would read it.
nlohmann::ordered_json read_example(const std::string& text) {
  return read_json_object(parse_json(text, "c.json"), "c.json", [](JsonObject& root) {
    root.object("train", [](JsonObject& train) {
      train.integer("epochs", 20, {1, 1000});
      train.number("momentum", 0.5, {.min = 0, .max = 1, .below_max = true});
      train.number("lr", 0.1, {.min = 0, .above_min = true});
      train.boolean("sync", true);
      train.choice("type", "fp32", {"fp32", "bf16"});
    });
    root.object("data", [](JsonObject& data) {
      data.text("directory", "data");
      data.numbers("mean", {0.5, 0.5}, {.min = 0, .max = 1});
      data.integers("milestones", {}, {.min = 0});
    });
    root.choice("optimizer", "sgd", {"sgd", "adam"});
  });
}

TEST(JsonReader, GivesDefaultsInTheOrderAsked) {
  EXPECT_EQ(read_example("{}").dump(),
            R"({"train":{"epochs":20,"momentum":0.5,"lr":0.1,"sync":true,"type":"fp32"},)"
            R"("data":{"directory":"data","mean":[0.5,0.5],"milestones":[]},"optimizer":"sgd"})");
}

TEST(JsonReader, TakesManyPartsInTimeThatGrowsWithThem) {
  constexpr std::size_t kParts = 400'000;  // squared it would be minutes
  std::string text = "[{}";
  for (std::size_t i = 1; i < kParts; ++i) text += ",{}";
  EXPECT_EQ(parse_json(text + "]", "many").size(), kParts);
}

TEST(JsonReader, GivesTheValuesWrittenAndAllowsComments) {
  const auto resolved = read_example(R"({
    // a comment
    "train": {"epochs": 3, "momentum": 0, /* another */ "sync": false, "type": "bf16"},
    "data": {"mean": [0, 1], "milestones": [1, 2]}
  })");
  EXPECT_EQ(resolved["train"]["epochs"], 3);
  EXPECT_EQ(resolved["train"]["momentum"], 0.0);
  EXPECT_EQ(resolved["train"]["sync"], false);
  EXPECT_EQ(resolved["train"]["type"], "bf16");
  EXPECT_EQ(resolved["data"]["mean"], nlohmann::ordered_json::parse("[0.0, 1.0]"));
  EXPECT_EQ(resolved["data"]["milestones"], nlohmann::ordered_json::parse("[1, 2]"));
}

TEST(JsonReader, ReadsItsOwnResolvedOutput) {
  const auto resolved = read_example(R"({"train": {"epochs": 7, "lr": 0.3}})");
  EXPECT_EQ(read_example(resolved.dump()), resolved);
}

TEST(JsonReader, NamesTheNearestRightNameOfAnUnknownKey) {
  EXPECT_EQ(refusal([] { read_example(R"({"train": {"epoch": 3}})"); }),
            "c.json: train.epoch: unknown key; did you mean train.epochs?");
  EXPECT_EQ(refusal([] { read_example(R"({"trian": {}})"); }),
            "c.json: trian: unknown key; did you mean train?");
}

TEST(JsonReader, NamesTheSectionAMisplacedKeyBelongsTo) {
  EXPECT_EQ(refusal([] { read_example(R"({"data": {"momentum": 0.1}})"); }),
            "c.json: data.momentum: unknown key; did you mean train.momentum?");
  EXPECT_EQ(refusal([] { read_example(R"({"train": {"optimizer": "sgd"}})"); }),
            "c.json: train.optimizer: unknown key; did you mean optimizer?");
}

TEST(JsonReader, NamesWhatAShortenedKeyIsShortFor) {
  const auto meant_by = [](const std::string& path) {
    nlohmann::json given;
    given[nlohmann::json::json_pointer("/" + path)] = 1;
    return refusal([&] {
      read_json_object(given, "c.json", [](JsonObject& root) {
        root.object("data", [](JsonObject& data) {
          data.object("synthetic", [](JsonObject& images) { images.integer("seed", 1, {}); });
        });
        root.object("optimizer", [](JsonObject& optimizer) {
          optimizer.number("bias_weight_decay", 0, {});
          optimizer.number("learning_rate", 1, {});
        });
        root.object("train", [](JsonObject& train) {
          train.integer("global_batch_size", 1, {});
          train.integer("batch_size_per_rank", 1, {});
          train.integer("seed", 1, {});
        });
      });
    });
  };
  EXPECT_EQ(meant_by("optimizer/lr"),
            "c.json: optimizer.lr: unknown key; did you mean optimizer.learning_rate?");
  for (const auto& [path, meant] :
       {std::pair{"lr", "optimizer.learning_rate"},
        std::pair{"train/lr", "optimizer.learning_rate"},
        std::pair{"optimizer/weight_decay", "optimizer.bias_weight_decay"},
        std::pair{"optimizer/rate", "optimizer.learning_rate"},
        std::pair{"train/batch_size", "train.batch_size_per_rank"},
        std::pair{"batch_size", "train.batch_size_per_rank"}, std::pair{"seed", "train.seed"},
        std::pair{"data/seed", "train.seed"}})
    EXPECT_TRUE(meant_by(path).ends_with("did you mean " + std::string(meant) + "?")) << path;
  EXPECT_EQ(meant_by("train/rate"),
            "c.json: train.rate: unknown key; allowed: global_batch_size, "
            "batch_size_per_rank, seed");
}

TEST(JsonReader, OfAKeyLikeNoOtherItNamesThoseOfItsSection) {
  EXPECT_EQ(refusal([] { read_example(R"({"train": {"xyzzy": 1}})"); }),
            "c.json: train.xyzzy: unknown key; allowed: epochs, momentum, lr, sync, type");
  EXPECT_EQ(refusal([] { read_example(R"({"xyzzy": 1})"); }),
            "c.json: xyzzy: unknown key; allowed: train, data, optimizer");
}

TEST(JsonReader, RefusesNulCharacters) {
  EXPECT_EQ(
      refusal([] { read_example(R"({"data": {"directory": "a\u0000b"}})"); }),
      R"(c.json: data.directory: found "a\u0000b"; allowed: a string without NUL characters)");
}

TEST(JsonReader, NamesWhatWasFoundAndWhatIsAllowed) {
  const auto train = [](const std::string& text) {
    return refusal([&] { read_example(R"({"train": )" + text + "}"); });
  };
  EXPECT_EQ(train(R"({"epochs": "ten"})"),
            R"(c.json: train.epochs: found "ten"; allowed: an integer from 1 to 1000)");
  EXPECT_EQ(train(R"({"epochs": 0})"),
            "c.json: train.epochs: found 0; allowed: an integer from 1 to 1000");
  EXPECT_EQ(train(R"({"epochs": 2.5})"),
            "c.json: train.epochs: found 2.5; allowed: an integer from 1 to 1000");
  EXPECT_EQ(train(R"({"epochs": 18446744073709551615})"),
            "c.json: train.epochs: found 18446744073709551615; allowed: an integer from 1 to 1000");
  EXPECT_EQ(train(R"({"momentum": 1})"),
            "c.json: train.momentum: found 1; allowed: a number of at least 0 and below 1");
  EXPECT_EQ(train(R"({"lr": 0})"), "c.json: train.lr: found 0; allowed: a number above 0");
  EXPECT_EQ(train(R"({"sync": 1})"), "c.json: train.sync: found 1; allowed: true or false");
  EXPECT_EQ(train(R"({"type": "fp23"})"),
            R"(c.json: train.type: found "fp23"; allowed: "fp32", "bf16"; did you mean "fp32"?)");
  EXPECT_EQ(train("[]"), "c.json: train: found an array; allowed: a section { … }");
  EXPECT_EQ(refusal([] { read_example(R"({"data": {"mean": [0, 2]}})"); }),
            "c.json: data.mean: found 2; allowed: an array, each element a number of at least 0 and"
            " at most 1");
  EXPECT_EQ(refusal([] { read_example(R"({"data": {"directory": null}})"); }),
            "c.json: data.directory: found null; allowed: a string");
  EXPECT_EQ(refusal([] { read_example("[1]"); }),
            "c.json: found an array; allowed: one object { … }");
}

TEST(JsonReader, CutsLongValuesBetweenCharacters) {
  for (std::size_t begin = 55; begin < 62; ++begin) {
    const std::string long_text = std::string(begin, 'x') + "ü€ü€ü€";
    const std::string line =
        refusal([&] { read_example(R"({"train": {"sync": ")" + long_text + R"("}})"); });
    EXPECT_NO_THROW((void)json(line).dump()) << "it is UTF-8: " << line;
    EXPECT_THAT(line, ::testing::HasSubstr("…; allowed: true or false"));
  }
}

TEST(JsonReader, LetsTheProgramRefuseCombinations) {
  EXPECT_EQ(refusal([] {
              read_json_object(json::object(), "c.json", [](JsonObject& root) {
                root.object("train", [](JsonObject& train) {
                  if (!train.has("batch")) train.refuse("batch", "missing");
                });
              });
            }),
            "c.json: train.batch: missing");
}

TEST(JsonReader, GivesLineAndColumnOfSyntaxErrors) {
  const std::string message = refusal([] { parse_json("{\n  \"a\": 1,\n  \"b\" 2\n}", "c.json"); });
  EXPECT_EQ(message.substr(0, 12), "c.json:3:7: ") << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_EQ(refusal([] { parse_json("", "c.json"); }).substr(0, 12), "c.json:1:1: ");
  EXPECT_NE(refusal([] { parse_json("{\"a\": 1e999}", "c.json"); }), "");
}

TEST(JsonReader, RefusesAKeyThatIsThereTwice) {
  EXPECT_EQ(refusal([] { parse_json(R"({"a": {"b": 1, "c": 2, "b": 3}})", "c.json"); }),
            "c.json: a.b: the key is there twice");
  EXPECT_EQ(refusal([] { parse_json(R"({"a": {"b": 1}, "c": {"b": 3}})", "c.json"); }), "");
  EXPECT_EQ(refusal([] { parse_json(R"([{"b": 1}, {"b": 3}])", "c.json"); }), "");
}

TEST(JsonReader, SurvivesGarbage) {
  for (const std::string text :
       {"\xff\xfe", "{", "[[[[[[", "{\"a\":", "\"\\ud800\"", "nul", "{\"\xc3\": 1}", "// only"})
    EXPECT_NE(refusal([&] { parse_json(text, "c.json"); }), "") << text;
}

TEST(JsonReader, NamesAFileThatCannotBeRead) {
  EXPECT_EQ(refusal([] { read_json_file("/nowhere/c.json"); }),
            "/nowhere/c.json: cannot read the file: No such file or directory");
  EXPECT_EQ(refusal([] { read_json_file("/"); }), "/: cannot read the file: Is a directory");
}

TEST(JsonOverride, SetsValuesAsJsonOrElseAsStrings) {
  json root = json::parse(R"({"train": {"epochs": 1}})");
  apply_override(root, "train.epochs=5");
  apply_override(root, "train.mean=[1, 2]");
  apply_override(root, "data.directory=data/cifar=100");
  apply_override(root, "name=\"5\"");
  apply_override(root, "empty=");
  EXPECT_EQ(root, json::parse(R"({"train": {"epochs": 5, "mean": [1, 2]},
      "data": {"directory": "data/cifar=100"}, "name": "5", "empty": ""})"));
}

TEST(JsonOverride, RefusesWhatIsNoAssignmentOrGoesThroughAValue) {
  json root = json::parse(R"({"train": {"epochs": 1}})");
  const auto set = [&](const std::string& text) {
    return refusal([&] { apply_override(root, text); });
  };
  EXPECT_EQ(set("epochs"), "--set epochs: expected key.path=value");
  EXPECT_EQ(set("=3"), "--set =3: expected key.path=value");
  EXPECT_EQ(set("train.=3"), "--set train.=3: expected key.path=value");
  EXPECT_EQ(set("train.epochs.x=3"), "--set train.epochs.x=3: train.epochs is no section, but 1");
  EXPECT_EQ(set("a={\"b\":1,\"b\":2}"), "--set a: b: the key is there twice");
  json list = json::parse("[1]");
  EXPECT_EQ(refusal([&] { apply_override(list, "train.epochs=1"); }),
            "--set train.epochs=1: the file has no sections: it is not one object");
}

TEST(JsonReader, SaysThatAListWasLeftOffWithAComma) {
  const std::string why = "nothing follows the comma before this";
  EXPECT_EQ(refusal([] { parse_json("{\"a\": 1,\n}", "c.json"); }), "c.json:2:1: " + why);
  EXPECT_EQ(refusal([] { parse_json("{\"a\": [1, ]}", "c.json"); }), "c.json:1:11: " + why);
  EXPECT_THAT(refusal([] { parse_json("{\"a\" 1}", "c.json"); }), HasSubstr("expected ':'"));
}

TEST(JsonReader, NamesTheFileThatMayBeMeant) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  std::ofstream(folder + "/resnet18.json") << "{}";
  EXPECT_EQ(refusal([&] { read_json_file(folder + "/resnet_18.json"); }),
            folder +
                "/resnet_18.json: cannot read the file: No such file or directory; did you mean " +
                folder + "/resnet18.json?");
  EXPECT_EQ(refusal([&] { read_json_file(folder + "/vgg.json"); }),
            folder + "/vgg.json: cannot read the file: No such file or directory");
}

TEST(JsonOverride, IsWhatErrorsInItName) {
  const auto refused = [](const std::string& text, const std::vector<std::string>& assignments) {
    return refusal([&] {
      json root = parse_json(text, "c.json");
      ConfigSource source("c.json");
      for (const std::string& assignment : assignments)
        source.replace(apply_override(root, assignment), "--set " + assignment);
      read_json_object(root, source, [](JsonObject& object) {
        object.object("train", [](JsonObject& train) {
          train.integer("epochs", 1);
          train.integer("seed", 1);
          train.number("decay", 0, {.min = 0, .max = 1});
          train.text("name", "");
        });
      });
    });
  };
  EXPECT_EQ(refused("{}", {"train.epochs=ten"}),
            "--set train.epochs=ten: train.epochs: found \"ten\"; allowed: an integer");
  EXPECT_EQ(refused(R"({"train": {"epochs": 1}})", {"train.epochs=a", "train.epochs=b"}),
            "--set train.epochs=b: train.epochs: found \"b\"; allowed: an integer");
  EXPECT_EQ(refused(R"({"train": {"epochs": "c"}})", {"train.seed=1"}),
            "c.json: train.epochs: found \"c\"; allowed: an integer");
  EXPECT_EQ(refused(R"({"train": {"epochs": "c"}})", {"train={\"seed\": \"d\"}"}),
            "--set train={\"seed\": \"d\"}: train.seed: found \"d\"; allowed: an integer");
  EXPECT_EQ(refused("{}", {"trian.epochs=1"}),
            "--set trian.epochs=1: trian: unknown key; did you mean train?");
  EXPECT_EQ(refused(R"({"trian": {}})", {"trian.epochs=1"}),
            "c.json: trian: unknown key; did you mean train?");
  EXPECT_EQ(refused(R"({"train2": 1})", {"train.seed=1"}),
            "c.json: train2: unknown key; did you mean train?");

  const std::string number = "allowed: a number of at least 0 and at most 1";
  EXPECT_EQ(refused("{}", {"train.decay=.9"}),
            "--set train.decay=.9: train.decay: found \".9\"; " + number + " (write 0.9)");
  EXPECT_EQ(refused("{}", {"train.decay=+1."}),
            "--set train.decay=+1.: train.decay: found \"+1.\"; " + number + " (write 1)");
  for (const std::string text : {"2.", ".5x", "inf", "nan", ""})  // what would be refused as well
    EXPECT_EQ(refused("{}", {"train.decay=" + text}),
              "--set train.decay=" + text + ": train.decay: found \"" + text + "\"; " + number);
  EXPECT_EQ(refused("{}", {"train.epochs=1e3"}),
            "--set train.epochs=1e3: train.epochs: found 1000.0; allowed: an integer (write 1000)");
  EXPECT_EQ(refused(R"({"train": {"epochs": "5"}})", {}),
            "c.json: train.epochs: found \"5\"; allowed: an integer (write 5)");
  EXPECT_EQ(refused("{}", {"train.epochs=.5"}),
            "--set train.epochs=.5: train.epochs: found \".5\"; allowed: an integer");
  EXPECT_EQ(refused("{}", {"train.name=2024"}),
            "--set train.name=2024: train.name: found 2024; allowed: a string (write '\"2024\"')");
  EXPECT_EQ(refused(R"({"train": {"name": true}})", {}),
            "c.json: train.name: found true; allowed: a string (write \"true\")");
}

TEST(NearestName, ForgivesSwappedAndMissingLetters) {
  const std::vector<std::string> names = {"optimizer", "schedule", "epochs"};
  EXPECT_EQ(nearest_name("optimzer", names), "optimizer");
  EXPECT_EQ(nearest_name("opitmizer", names), "optimizer");
  EXPECT_EQ(nearest_name("shedule", names), "schedule");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name("verylongandelsewhere", names), "");
}

}  // namespace
}  // namespace dlaunch
