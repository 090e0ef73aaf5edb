// Times MPI_Allreduce of the MPI that it is compiled with; prints one JSON line (exchange_sides.py says what it means).
//
// usage: mpiexec -n RANKS all_reduce_mpi BYTES:TIMES...
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_FOR_EACH 1.5
#define LEAST_TIMES 5

static int compare(const void* a, const void* b) {
  const double left = *(const double*)a, right = *(const double*)b;
  return left < right ? -1 : left > right;
}

static void sum(float* values, size_t count) {
  MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static double largest(double value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return value;
}

// Returns the seconds of `times` all-reduces one after the other, of the slowest rank.
static double time_some(float* values, size_t count, int times) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int i = 0; i < times; ++i) sum(values, count);
  return largest(MPI_Wtime() - begin);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank == 0) printf("{\"seconds\": {");
  for (int a = 1; a < argc; ++a) {
    size_t bytes = 0;
    int times = 0;
    if (sscanf(argv[a], "%zu:%d", &bytes, &times) != 2 || times < 1) MPI_Abort(MPI_COMM_WORLD, 2);
    const size_t count = bytes / sizeof(float);
    float* const values = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    for (size_t i = 0; i < count; ++i) values[i] = 1;
    sum(values, count);
    for (size_t i = 0; i < count; ++i) {
      if (values[i] != (float)ranks) MPI_Abort(MPI_COMM_WORLD, 3);
    }
    memset(values, 0, bytes);  // zeros stay zeros, however often they are summed
    const double enough = SECONDS_FOR_EACH / (time_some(values, count, 2) / 2 + 1e-9);
    if (enough < times) times = enough < LEAST_TIMES ? LEAST_TIMES : (int)enough;
    double* const seconds = malloc((size_t)times * sizeof(double));
    for (int i = 0; i < times; ++i) seconds[i] = time_some(values, count, 1);
    qsort(seconds, (size_t)times, sizeof(double), compare);
    const double together = time_some(values, count, times) / times;
    if (rank == 0) {
      printf("%s\"%zu\": [%.9f, %.9f]", a > 1 ? ", " : "", bytes, (seconds[(times - 1) / 2] + seconds[times / 2]) / 2,
             together);
    }
    free(seconds);
    free(values);
  }
  if (rank == 0) printf("}}\n");
  MPI_Finalize();
  return 0;
}
