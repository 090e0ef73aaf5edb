#include "trainyard/core/base/build_info.h"

#include <cctype>
#include <map>
#include <regex>
#include <string>
#include <string_view>

#include "build_values.h"
#include <gtest/gtest.h>

namespace trainyard::core::build_info_test {
namespace {

TEST(BuildInfoTest, NamesVersionRevisionAndCompiler) {
  const BuildInfo& info = build_info();
  EXPECT_TRUE(std::regex_match(std::string(info.version), std::regex(R"(\d+\.\d+\.\d+)"))) << info.version;
  EXPECT_TRUE(std::regex_match(std::string(info.git_revision), std::regex(R"([0-9a-f]{7,}\+?|unknown)")))
      << info.git_revision;
  EXPECT_EQ(info.compiler, "GNU " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__) + "." +
                               std::to_string(__GNUC_PATCHLEVEL__));
  EXPECT_FALSE(info.instruction_set.empty());
}

TEST(BuildInfoTest, EachLibraryHasAVersion) {
  EXPECT_GE(build_info().libraries.size(), 9u);
  for (const LibraryVersion& library : build_info().libraries)
    EXPECT_TRUE(!library.version.empty() && std::isdigit(library.version[0]))
        << library.name << ": " << library.version;
}

TEST(BuildInfoTest, EachOptionalPartSaysHowToGetIt) {
  for (const OptionalPart& part : build_info().optional_parts) EXPECT_FALSE(part.how_to_get.empty()) << part.name;
}

TEST(BuildInfoTest, HasTheOptionalPartsThatWereConfigured) {
  const std::map<std::string_view, bool> configured = {
      {"CUDA", TRAINYARD_WITH_CUDA == 1}, {"NCCL", TRAINYARD_WITH_NCCL == 1}, {"MPI", TRAINYARD_WITH_MPI == 1},
      {"gRPC", TRAINYARD_WITH_GRPC == 1}, {"HDF5", TRAINYARD_HDF5 == 1},      {"WebP", TRAINYARD_WEBP == 1},
      {"GIF", TRAINYARD_GIF == 1},        {"BMP", TRAINYARD_BMP == 1},        {"TIFF", TRAINYARD_TIFF == 1}};
  std::map<std::string_view, bool> told;
  for (const OptionalPart& part : build_info().optional_parts) told[part.name] = part.built_in;
  EXPECT_EQ(told, configured);
}

#if defined(__SANITIZE_ADDRESS__)
TEST(BuildInfoTest, TellsOfSanitizers) {
  EXPECT_NE(build_info().sanitizers.find("address"), std::string_view::npos);
}
#endif

}  // namespace
}  // namespace trainyard::core::build_info_test
