/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Stands in for libcuda.so.1 and for libcudart.so.12, so that NIXL's LIBFABRIC back end loads on a
 * machine without a GPU: every call returns the "no device" error, which has the same number in
 * both.
 */
enum { NO_DEVICE = 100 };

#define ANSWERS(name) int name(void); int name(void) { return NO_DEVICE; }

ANSWERS(cuCtxSetCurrent)
ANSWERS(cuDeviceGetPCIBusId)
ANSWERS(cuPointerGetAttributes)
ANSWERS(cudaSetDevice)

const char *cudaGetErrorString(int error);

const char *cudaGetErrorString(int error)
{
	return error == NO_DEVICE ? "no device" : "no error";
}
