/* The C interface of a compiled model (model.so in a package). The Python runtime uses exactly this. */
#ifndef EVERPORT_H
#define EVERPORT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EVERPORT_ABI_VERSION 1

/* Codes of everport_tensor.dtype. An element of less than 8 bits stands alone in the low bits of a byte; the high bits of inputs
   are ignored. */
enum {
  EVERPORT_BOOL = 0, EVERPORT_I4, EVERPORT_I8, EVERPORT_I16, EVERPORT_I32, EVERPORT_I64, EVERPORT_U4, EVERPORT_U8,
  EVERPORT_U16, EVERPORT_U32, EVERPORT_U64, EVERPORT_F16, EVERPORT_BF16, EVERPORT_F32, EVERPORT_F64,
  EVERPORT_F8E4M3FN, EVERPORT_F8E4M3FNUZ, EVERPORT_F8E5M2, EVERPORT_F8E5M2FNUZ, EVERPORT_I2, EVERPORT_U2, EVERPORT_F8E8M0,
  EVERPORT_F6E2M3, EVERPORT_F6E3M2, EVERPORT_F4E2M1
};

/* A dense row-major tensor. `shape` has `rank` entries. */
typedef struct everport_tensor {
  void *data;
  int64_t *shape;
  int32_t rank;
  int32_t dtype;
} everport_tensor;

/* Why a call failed. */
enum {
  EVERPORT_OK = 0,
  EVERPORT_BAD_RANK = 1,   /* input `argument` has rank `actual`, not `expected` */
  EVERPORT_BAD_DTYPE = 2,  /* input `argument` has type code `actual`, not `expected` */
  EVERPORT_BAD_CHECK = 3,  /* check number `check` of the host program failed */
  EVERPORT_BAD_OUTPUT = 4, /* output `argument`, axis `axis`, is `actual`, not `expected` */
  EVERPORT_NO_MEMORY = 5   /* `allocate` gave NULL for output `argument` (-1: the arena) of `expected` bytes */
};

typedef struct everport_error {
  int32_t code;
  int32_t argument;
  int32_t axis;
  int32_t check;
  int64_t expected;
  int64_t actual;
} everport_error;

/* One call at a time may use one everport_call. */
typedef struct everport_call {
  const void *weights;   /* data section of weights.safetensors */
  void *arena;           /* 64-byte aligned; grown through `allocate` */
  int64_t arena_bytes;
  /* Memory for output `output`, or for the arena (output -1, rank 0; 64-byte aligned). */
  void *(*allocate)(void *user, int32_t output, const int64_t *shape, int32_t rank, int64_t bytes);
  void *user;
  void *pool;            /* from everport_pool_create, or NULL: the calling thread does it all */
  int64_t *profile;      /* NULL, or one counter a launch: nanoseconds are added */
} everport_call;

uint32_t everport_abi_version(void);

/* Runs the model. `outputs[i].shape` must have room for the output's rank and is filled in; where `outputs[i].data` is NULL
   memory is asked for, else its given shape must be the right one. Gives EVERPORT_OK or the error's code. */
int32_t everport_run(everport_call *call, const everport_tensor *inputs, everport_tensor *outputs, everport_error *error);

/* `threads` counts the caller. NULL for one thread, or where memory is short. */
void *everport_pool_create(int32_t threads);
void everport_pool_destroy(void *pool);

#ifdef __cplusplus
}
#endif
#endif
