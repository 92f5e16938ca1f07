/* Atomic operations as C computes them: reads cases, writes the new value of each target. */
#include <complex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 32

struct request {
	uint8_t datatype;
	uint8_t op;
	uint8_t rest[14];
	uint8_t target[MOST], operand[MOST], compare[MOST];
};

enum op {
	MIN, MAX, SUM, PROD, LOR, LAND, BOR, BAND, LXOR, BXOR, READ, WRITE,
	CSWAP, CSWAP_NE, CSWAP_LE, CSWAP_LT, CSWAP_GE, CSWAP_GT, MSWAP, DIFF,
};

#define FOR_ANY(T, o, c, from, to) \
	case SUM: T = to(from(T) + from(o)); return; \
	case PROD: T = to(from(T) * from(o)); return; \
	case LOR: T = to(from(T) || from(o)); return; \
	case LAND: T = to(from(T) && from(o)); return; \
	case LXOR: T = to((from(T) && !from(o)) || (!from(T) && from(o))); return; \
	case READ: return; \
	case WRITE: T = o; return; \
	case CSWAP: if (from(c) == from(T)) T = o; return; \
	case CSWAP_NE: if (from(c) != from(T)) T = o; return;

#define FOR_ORDERED(T, o, c, from, to) \
	case MIN: if (from(o) < from(T)) T = o; return; \
	case MAX: if (from(o) > from(T)) T = o; return; \
	case DIFF: T = to(from(T) - from(o)); return; \
	case CSWAP_LE: if (from(c) <= from(T)) T = o; return; \
	case CSWAP_LT: if (from(c) < from(T)) T = o; return; \
	case CSWAP_GE: if (from(c) >= from(T)) T = o; return; \
	case CSWAP_GT: if (from(c) > from(T)) T = o; return;

#define FOR_BITS(T, o, c) \
	case BOR: T = T | o; return; \
	case BAND: T = T & o; return; \
	case BXOR: T = T ^ o; return; \
	case MSWAP: T = (o & c) | (T & ~c); return;

#define SAME(x) (x)

#define FUNCTION(name, type, cases) \
	static void name(enum op op, void *target, const void *operand, const void *compare) \
	{ \
		type *t = target; \
		const type o = *(const type *) operand, c = *(const type *) compare; \
		switch (op) { cases default: abort(); } \
	}

#define INTEGER(name, type) FUNCTION(name, type, \
	FOR_ANY(*t, o, c, SAME, SAME) FOR_ORDERED(*t, o, c, SAME, SAME) FOR_BITS(*t, o, c))
#define REAL(name, type) FUNCTION(name, type, FOR_ANY(*t, o, c, SAME, SAME) FOR_ORDERED(*t, o, c, SAME, SAME))
#define COMPLEX(name, type) FUNCTION(name, type, FOR_ANY(*t, o, c, SAME, SAME))

INTEGER(int8, int8_t)
INTEGER(uint8, uint8_t)
INTEGER(int16, int16_t)
INTEGER(uint16, uint16_t)
INTEGER(int32, int32_t)
INTEGER(uint32, uint32_t)
INTEGER(int64, int64_t)
INTEGER(uint64, uint64_t)
INTEGER(int128, __int128)
INTEGER(uint128, unsigned __int128)
REAL(single, float)
REAL(twice, double)
REAL(extended, long double)
REAL(half, _Float16)
COMPLEX(complex_single, float complex)
COMPLEX(complex_double, double complex)
COMPLEX(complex_extended, long double complex)

/* The upper half of a float: computed as a float. */
static float widened(uint16_t bits)
{
	uint32_t wide = (uint32_t) bits << 16;
	float value;

	memcpy(&value, &wide, sizeof value);
	return value;
}

static uint16_t narrowed(float value)
{
	uint32_t wide;

	memcpy(&wide, &value, sizeof wide);
	if (value != value)
		return wide >> 16 | 0x40;
	return (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
}

FUNCTION(brain, uint16_t, FOR_ANY(*t, o, c, widened, narrowed) FOR_ORDERED(*t, o, c, widened, narrowed))

typedef void function(enum op, void *, const void *, const void *);

static function *const functions[] = {
	int8, uint8, int16, uint16, int32, uint32, int64, uint64, single, twice, complex_single, complex_double,
	extended, complex_extended, int128, uint128, half, brain,
};

int main(void)
{
	static struct request request;
	_Alignas(16) uint8_t target[MOST], operand[MOST], compare[MOST];

	while (fread(&request, sizeof request, 1, stdin) == 1) {
		memcpy(target, request.target, MOST);
		memcpy(operand, request.operand, MOST);
		memcpy(compare, request.compare, MOST);
		functions[request.datatype](request.op, target, operand, compare);
		if (fwrite(target, MOST, 1, stdout) != 1)
			return 1;
	}
	return fflush(stdout) != 0;
}
