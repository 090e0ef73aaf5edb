#include "trainyard/core/files/listing_cache.h"

namespace trainyard::core {

std::vector<std::string> ListingCache::list(const std::string& directory) {
  const std::lock_guard lock(mutex_);
  const auto known = listings_.find(directory);
  if (known != listings_.end()) return known->second;
  return listings_.emplace(directory, files_.list(directory)).first->second;
}

void ListingCache::invalidate() {
  const std::lock_guard lock(mutex_);
  listings_.clear();
}

std::unique_ptr<WritableFile> ListingCache::open_write(const std::string& path) {
  invalidate();
  return files_.open_write(path);
}

std::unique_ptr<WritableFile> ListingCache::open_append(const std::string& path) {
  invalidate();
  return files_.open_append(path);
}

void ListingCache::make_directories(const std::string& path) {
  invalidate();
  files_.make_directories(path);
}

void ListingCache::rename(const std::string& from, const std::string& to) {
  invalidate();
  files_.rename(from, to);
}

bool ListingCache::link_file(const std::string& from, const std::string& to) {
  invalidate();
  return files_.link_file(from, to);
}

void ListingCache::remove_file(const std::string& path) {
  invalidate();
  files_.remove_file(path);
}

void ListingCache::remove_tree(const std::string& path) {
  invalidate();
  files_.remove_tree(path);
}

}  // namespace trainyard::core
