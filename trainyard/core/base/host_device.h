// Marks functions that are called from the host and from CUDA kernels.
#pragma once

#ifdef __CUDACC__
#define TRAINYARD_HOST_DEVICE __host__ __device__
#else
#define TRAINYARD_HOST_DEVICE
#endif
