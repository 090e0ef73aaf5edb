// Walks over the files of a data set that digests are made of, through links, too.
#pragma once

#include <string>

#include "trainyard/core/files/file_system.h"

namespace trainyard::data {

// What a walk finds is told to it.
class FileVisitor {
 public:
  virtual ~FileVisitor() = default;

  // Returns whether the next name is looked at. Where not, it is left out with all that lies below it.
  virtual bool wants_more() { return true; }
  // Called for each file and folder, in the order of their names; for a folder before what lies in it. `name` is the
  // path from the walked folder on, "cats/1.jpg"; that of a walked file is its own.
  virtual void visit(const std::string& name, const core::FileInfo& info) = 0;
  // Called before a folder is listed, the walked one (depth 0) included. What it throws ends the walk.
  virtual void open_folder(const std::string& /*path*/, int /*depth*/) {}
};

// Visits the file `path`, or all that lies below the folder `path`, but not the folder itself, which may be known by
// another name elsewhere. Dangling links are ignored. A link to a folder that it lies in is visited and not followed.
// Throws kNotFound where `path` itself is missing, and kIo.
void walk_files(core::FileSystem& files, const std::string& path, FileVisitor& visitor);

}  // namespace trainyard::data
