#include "trainyard/cli/main.h"

int main(int argc, char** argv) {
  return trainyard::cli::main(argc, argv);
}
