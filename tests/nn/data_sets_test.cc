#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb_image_write.h>

#include "nn/data/cifar.h"
#include "nn/data/image_file.h"
#include "nn/data/image_folder.h"
#include "nn/data/synthetic.h"
#include "runtime/base/temporary_folder.h"

namespace dlaunch::nn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A fresh directory that goes away with the test.
class DataSets : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  void write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << content;
  }

  /// A record with the given label bytes whose channel c has the value 10 * c + `shade` at pixel 0
  /// and 7 elsewhere.
  static std::string record(const std::string& labels, int shade) {
    std::string planes(std::size_t{3} * 1024, '\7');
    for (std::size_t c = 0; c < 3; ++c)
      planes[c * 1024] = static_cast<char>(10 * static_cast<int>(c) + shade);
    return labels + planes;
  }
  CifarLayout layout(std::size_t records) const {
    return {.files = {path("a.bin"), path("b.bin")},
            .records_per_file = records,
            .label_bytes = 2,
            .classes = 3,
            .class_names_file = path("names.txt"),
            .advice = "get it again"};
  }

  const TemporaryFolder temporary_;
  const std::string directory_ = temporary_.path();
};

template <typename Action>
std::string data_error(Action&& action) {
  try {
    action();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(DataSets, CifarFilesGiveInterleavedPixelsAndTheLastLabelByte) {
  write("a.bin", record({19, 0}, 1) + record({19, 1}, 2));
  write("b.bin", record({19, 2}, 3) + record({19, 0}, 4));
  write("names.txt", "apple\nbeaver\nchair\n");
  const auto dataset = open_cifar(layout(2));
  ASSERT_EQ(dataset->size(), 4U);
  EXPECT_EQ(dataset->image_shape(), (ImageShape{32, 32, 3}));
  EXPECT_THAT(dataset->class_names(), ElementsAre("apple", "beaver", "chair"));
  EXPECT_THAT((std::vector<int>{dataset->label(0), dataset->label(1), dataset->label(2),
                                dataset->label(3)}),
              ElementsAre(0, 1, 2, 0));
  std::vector<std::uint8_t> image(3072);
  dataset->copy_image(2, image);
  EXPECT_THAT(std::vector<int>(image.begin(), image.begin() + 6), ElementsAre(3, 13, 23, 7, 7, 7));
}

TEST_F(DataSets, CifarNamesMayEndAsOnWindows) {
  write("a.bin", record({0, 0}, 1));
  write("b.bin", record({0, 1}, 1));
  write("names.txt", "apple\r\nbeaver\r\nchair\r\n");
  EXPECT_THAT(open_cifar(layout(1))->class_names(), ElementsAre("apple", "beaver", "chair"));
}

TEST_F(DataSets, CifarNamesClassesByNumberWithoutANamesFile) {
  write("a.bin", record({0, 0}, 1));
  write("b.bin", record({0, 1}, 1));
  EXPECT_THAT(open_cifar(layout(1))->class_names(), ElementsAre("0", "1", "2"));
}

TEST_F(DataSets, CifarRefusesBadFilesWithOneClearLine) {
  const auto open = [&] { open_cifar(layout(2)); };
  EXPECT_EQ(data_error(open), path("a.bin") + ": No such file or directory; get it again");

  write("a.bin", record({0, 0}, 1) + record({0, 0}, 1));
  write("b.bin", record({0, 0}, 1));
  EXPECT_EQ(data_error(open), path("b.bin") +
                                  ": 3074 bytes, but 2 records of 3074 bytes are 6148 "
                                  "bytes: it is truncated; get it again");
  write("b.bin", record({0, 0}, 1) + record({0, 0}, 1) + "x");
  EXPECT_THAT(data_error(open), HasSubstr("6149 bytes, but 2 records"));
  write("b.bin", record({0, 0}, 1) + record({0, 3}, 1));
  EXPECT_EQ(data_error(open), path("b.bin") +
                                  ": record 1: label 3 is out of range, there are 3 "
                                  "classes; get it again");
  write("b.bin", record({0, 0}, 1) + record({0, 2}, 1));
  write("names.txt", "apple\n");
  EXPECT_EQ(data_error(open), path("names.txt") + ": 1 names for 3 classes; get it again");
  std::filesystem::remove(path("a.bin"));
  std::filesystem::remove(path("names.txt"));
  std::filesystem::create_directory(path("a.bin"));
  EXPECT_EQ(data_error(open), path("a.bin") + ": not a regular file; get it again");
  std::filesystem::remove(path("a.bin"));
  ASSERT_EQ(::mkfifo(path("a.bin").c_str(), 0600), 0);  // nobody will ever write to it
  EXPECT_EQ(data_error(open), path("a.bin") + ": not a regular file; get it again");
}

TEST_F(DataSets, CifarNoticesAFileThatIsCutWhileInUse) {
  write("a.bin", record({0, 0}, 1) + record({0, 0}, 1));
  write("b.bin", record({0, 0}, 1) + record({0, 1}, 1));
  const auto dataset = open_cifar(layout(2));
  std::filesystem::resize_file(path("b.bin"), 4000);
  std::vector<std::uint8_t> image(3072);
  EXPECT_EQ(data_error([&] { dataset->copy_image(3, image); }),
            path("b.bin") + ": record 1: the file was cut while in use; get it again");
}

TEST(CifarLayout, IsThatOfTheOfficialArchives) {
  const CifarLayout train = cifar_layout(CifarSet::kCifar10, Split::kTrain, "d");
  EXPECT_THAT(train.files,
              ElementsAre("d/data_batch_1.bin", "d/data_batch_2.bin", "d/data_batch_3.bin",
                          "d/data_batch_4.bin", "d/data_batch_5.bin"));
  EXPECT_EQ(train.records_per_file, 10000U);
  EXPECT_EQ(train.label_bytes, 1U);
  const CifarLayout fine = cifar_layout(CifarSet::kCifar100, Split::kTrain, "d");
  EXPECT_THAT(fine.files, ElementsAre("d/train.bin"));
  EXPECT_EQ(fine.records_per_file, 50000U);
  EXPECT_EQ(fine.label_bytes, 2U);
  EXPECT_EQ(cifar_layout(CifarSet::kCifar100, Split::kTest, "d").records_per_file, 10000U);
}

/// A PNG file of one colour.
std::string png(int height, int width, char shade) {
  const std::string pixels(static_cast<std::size_t>(height * width * 3), shade);
  std::string file;
  stbi_write_png_to_func(
      [](void* out, void* data, int size) {
        static_cast<std::string*>(out)->append(static_cast<char*>(data),
                                               static_cast<std::size_t>(size));
      },
      &file, width, height, 3, pixels.data(), width * 3);
  return file;
}

/// A JPEG file of noise.
std::string jpeg(int height, int width) {
  std::string pixels(static_cast<std::size_t>(height * width * 3), '\0');
  std::mt19937 random(7);
  for (char& value : pixels) value = static_cast<char>(random());
  std::string file;
  stbi_write_jpg_to_func(
      [](void* out, void* data, int size) {
        static_cast<std::string*>(out)->append(static_cast<char*>(data),
                                               static_cast<std::size_t>(size));
      },
      &file, width, height, 3, pixels.data(), 90);
  return file;
}

TEST_F(DataSets, AFolderOfImagesHasItsFoldersAsClasses) {
  write("dog/1.png", png(4, 5, 'd'));
  write("cat/2.png", png(4, 5, 'b'));
  write("cat/1.png", png(4, 5, 'a'));
  write("cat/notes.txt", "not an image");
  write("cat/.hidden.png", "not an image");
  const auto dataset = open_image_folder(directory_, std::nullopt);
  ASSERT_EQ(dataset->size(), 3U);
  EXPECT_EQ(dataset->image_shape(), (ImageShape{4, 5, 3}));
  EXPECT_THAT(dataset->class_names(), ElementsAre("cat", "dog"));
  EXPECT_EQ(dataset->label(1), 0);
  EXPECT_EQ(dataset->label(2), 1);
  std::vector<std::uint8_t> image(60);
  dataset->copy_image(1, image);
  EXPECT_EQ(image, std::vector<std::uint8_t>(60, 'b'));
}

TEST_F(DataSets, AFolderOfImagesTellsWhatIsNoPartOfIt) {
  write("set/cat/1.png", png(4, 5, 'a'));
  write("set/cat/.DS_Store", "hidden");
  EXPECT_EQ(open_image_folder(path("set"), std::nullopt)->remark(), "");
  write("set/dog/1.JPG", jpeg(4, 5));
  for (const char* name : {"3.webp", "2.webp", "Thumbs.db"})
    write("set/dog/" + std::string(name), "x");
  write("set/dog/more/2.png", png(4, 5, 'b'));
  write("set/labels.csv", "x");
  const auto dataset = open_image_folder(path("set"), std::nullopt);
  EXPECT_EQ(dataset->size(), 2U);
  EXPECT_EQ(dataset->remark(), path("set") +
                                   ": ignored 5 entries that are not .png, .jpg or .jpeg files in "
                                   "a class folder, first: " +
                                   path("set/dog/2.webp"));
}

TEST_F(DataSets, AFolderOfImagesIsResizedOnRequest) {
  write("a/1.png", png(4, 5, 'x'));
  write("b/1.png", png(9, 3, 'y'));
  const auto dataset = open_image_folder(directory_, ImageShape{6, 6, 3});
  std::vector<std::uint8_t> image(108);
  dataset->copy_image(1, image);
  EXPECT_EQ(image, std::vector<std::uint8_t>(108, 'y'));
  EXPECT_EQ(open_image_folder(directory_, ImageShape{6, 6, 3})->fingerprint(),
            dataset->fingerprint());
  EXPECT_NE(open_image_folder(directory_, ImageShape{6, 5, 3})->fingerprint(),
            dataset->fingerprint());
}

TEST_F(DataSets, AFolderOfImagesIsRefusedWithOneClearLine) {
  const auto open = [&] { open_image_folder(path("set"), std::nullopt); };
  EXPECT_THAT(data_error(open), HasSubstr("set: No such file or directory"));
  std::filesystem::create_directories(path("set"));
  EXPECT_THAT(data_error(open), HasSubstr("no folders in it"));
  std::filesystem::create_directories(path("set/a"));
  EXPECT_THAT(data_error(open), HasSubstr("set/a: no images in it"));
  write("set/a/1.png", png(4, 5, 'x'));
  write("set/b/1.png", png(4, 6, 'x'));
  EXPECT_THAT(data_error(open),
              AllOf(HasSubstr("set/b/1.png: 4 x 6 pixels, but "),
                    HasSubstr("set/a/1.png has 4 x 5"), HasSubstr("data.image_size")));
  write("set/b/1.png", "garbage");
  EXPECT_THAT(data_error(open), HasSubstr("set/b/1.png: cannot read the image"));
  // A good header with nothing behind it is found when the image is asked for.
  write("set/b/1.png", png(4, 5, 'x').substr(0, 33));
  const auto dataset = open_image_folder(path("set"), std::nullopt);
  std::vector<std::uint8_t> image(60);
  EXPECT_THAT(data_error([&] { dataset->copy_image(1, image); }),
              HasSubstr("set/b/1.png: cannot read the image"));
}

/// An image in a class of its own.
class ImageFiles : public DataSets {
 protected:
  std::vector<std::uint8_t> read(const std::string& name, const std::string& file) const {
    write(name, file);
    const ImageShape shape = read_image_shape(path(name));
    return read_image(path(name), shape);
  }
  std::string refusal(const std::string& name, const std::string& file) const {
    return data_error([&] { read(name, file); });
  }
};

TEST_F(ImageFiles, ThatAreWholeAreRead) {
  EXPECT_EQ(read("1.jpg", jpeg(30, 17)).size(), 30U * 17 * 3);
  EXPECT_EQ(read("1.png", png(30, 17, 'x')), std::vector<std::uint8_t>(30 * 17 * 3, 'x'));
  EXPECT_EQ(read("2.jpg", jpeg(9, 9) + std::string(100, '\0')).size(), 243U);  // padding
  // What cameras put before the picture: 60 segments of 64 KiB that a reader skips.
  std::string large = jpeg(9, 9);
  const std::string comment = "\xff\xfe\xff\xff" + std::string(65533, 'c');
  for (int i = 0; i < 60; ++i) large.insert(2, comment);
  EXPECT_EQ(read("3.jpg", large), read("4.jpg", jpeg(9, 9)));
}

TEST_F(ImageFiles, ThatAreCutOffAnywhereAreRefused) {
  for (const std::string& file : {jpeg(30, 17), png(30, 17, 'x')}) {
    const std::string name = file[0] == '\x89' ? "cut.png" : "cut.jpg";
    for (std::size_t length = 0; length < file.size(); ++length)
      ASSERT_THAT(refusal(name, file.substr(0, length)),
                  HasSubstr(name + ": cannot read the image: "))
          << length;
  }
}

TEST_F(ImageFiles, WithFlippedBitsAreRefusedIfTheyHaveChecksums) {
  const std::string file = png(30, 17, 'x');
  for (std::size_t at = 0; at < file.size(); ++at) {
    std::string flipped = file;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    ASSERT_NE(refusal("flipped.png", flipped), "") << at;
  }
}

TEST_F(ImageFiles, ThatWouldOverwhelmTheDecoderAreRefused) {
  const std::string start = "\xff\xd8";
  const std::string frame("\xff\xc0\0\x11\x08\0\x08\0\x08\x03\1\x22\0\2\x11\1\3\x11\1", 19);
  EXPECT_THAT(refusal("empty.jpg", start + frame + "\xff\xd9"),
              HasSubstr("there is no image in it"));
  // 255 codes of 14, of 15 and of 16 bits; and three of one bit.
  for (const bool many : {true, false}) {
    const std::string counts = many ? std::string(13, '\0') + std::string(3, '\xff')
                                    : std::string("\3") + std::string(15, '\0');
    const std::string table = std::string(1, '\0') + counts + std::string(many ? 765 : 3, '\1');
    const std::size_t length = table.size() + 2;
    const std::string segment = std::string("\xff\xc4") + static_cast<char>(length >> 8) +
                                static_cast<char>(length & 0xff) + table;
    EXPECT_THAT(refusal("tables.jpg", start + segment + frame + "\xff\xda\xff\xd9"),
                HasSubstr("cannot read the image"));
    std::string whole = jpeg(9, 9);
    whole.insert(2, segment);
    EXPECT_THAT(refusal("tables.jpg", whole), HasSubstr("impossible Huffman tables"));
  }
  std::string own = png(30, 17, 'x');  // another chunk before the size, as Apple's tools write
  own.insert(8, std::string("\0\0\0\x08"
                            "CgBI"
                            "\0\0\0\x08"
                            "\0\0\0\x08"
                            "crc!",
                            20));
  EXPECT_THAT(refusal("own.png", own), HasSubstr("its first chunk is not IHDR"));
  std::string huge = png(30, 17, 'x');
  huge.replace(16, 8, std::string("\0\xff\xff\xff\0\xff\xff\xff", 8));
  EXPECT_THAT(refusal("huge.png", huge), HasSubstr("16777215 x 16777215 pixels, at most "));
}

TEST_F(ImageFiles, WhoseScansNameTablesThatAreNotThereAreRefused) {
  for (const std::string marker : {"\xff\xc4", "\xff\xdb"}) {  // Huffman, quantization
    std::string without = jpeg(9, 9);
    int hidden = 0;
    for (std::size_t at = 0; (at = without.find(marker, at)) != std::string::npos; ++hidden)
      without[at + 1] = '\xe4';  // a segment of some application
    ASSERT_GT(hidden, 0);
    EXPECT_THAT(refusal("tables.jpg", without), HasSubstr("a scan without its tables"));
  }
  const std::string scan("\xff\xda\0\x0c\3\1", 6);  // of three components, the first one's tables
  std::string other = jpeg(9, 9);
  ASSERT_NE(other.find(scan), std::string::npos);
  other[other.find(scan) + scan.size()] = '\x20';
  EXPECT_THAT(refusal("tables.jpg", other), HasSubstr("a scan without its tables"));
  std::string arithmetic = jpeg(9, 9);
  const std::size_t frame = arithmetic.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  arithmetic[frame + 1] = '\xc9';
  EXPECT_THAT(refusal("arithmetic.jpg", arithmetic), HasSubstr("which is not read"));
}

TEST_F(DataSets, LinksToNothingAreRefused) {
  write("set/a/1.png", png(4, 5, 'x'));
  std::filesystem::create_symlink("nowhere", path("set/a/2.png"));
  const auto open = [&] { open_image_folder(path("set"), std::nullopt); };
  EXPECT_THAT(data_error(open), HasSubstr("set/a/2.png: "));
  std::filesystem::remove(path("set/a/2.png"));
  std::filesystem::create_symlink("nowhere", path("set/b"));
  EXPECT_THAT(data_error(open), HasSubstr("set/b: "));
  std::filesystem::remove(path("set/b"));
  open();
}

TEST(ResizeImage, KeepsARampARampAndAveragesWhenShrinking) {
  // One channel, one row: 0, 10, 20, 30, ... doubled in width. Linear interpolation at
  // (i + 0.5) / 2 - 0.5, clamped at the ends.
  const std::vector<std::uint8_t> ramp{0, 10, 20, 30};
  std::vector<std::uint8_t> wide(8);
  resize_image(ramp, {1, 4, 1}, wide, {1, 8, 1});
  EXPECT_THAT(std::vector<int>(wide.begin(), wide.end()), ElementsAre(0, 3, 8, 13, 18, 23, 28, 30));
  // A checkerboard shrunk to one pixel is its mean.
  const std::vector<std::uint8_t> board{0, 200, 200, 0};
  std::vector<std::uint8_t> one(1);
  resize_image(board, {2, 2, 1}, one, {1, 1, 1});
  EXPECT_EQ(one[0], 100);
}

TEST(Synthetic, IsTheSameEveryTimeAndDiffersBetweenImagesAndSplits) {
  const SyntheticOptions options{.classes = 5, .train_size = 20, .test_size = 10};
  const auto train = make_synthetic(options, Split::kTrain);
  const auto again = make_synthetic(options, Split::kTrain);
  const auto test = make_synthetic(options, Split::kTest);
  EXPECT_EQ(train->size(), 20U);
  EXPECT_EQ(test->size(), 10U);
  EXPECT_EQ(train->class_names().size(), 5U);
  std::vector<std::uint8_t> a(3072), b(3072), c(3072), d(3072);
  train->copy_image(3, a);
  again->copy_image(3, b);
  test->copy_image(3, c);
  train->copy_image(8, d);  // of the same class
  EXPECT_EQ(train->label(3), train->label(8));
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  EXPECT_NE(a, d);
}

}  // namespace
}  // namespace dlaunch::nn
