/* codec/ec.c: Reed-Solomon by ISA-L's vector kernels; this file chooses the matrices.
 *
 * The code's matrix is the identity over parity_count rows of a Cauchy matrix. Any data_count of
 * its rows form an invertible square matrix. With S as the rows of the remaining shards, the data
 * is S^-1 * shards, and a lost shard is its own row times that data. */
#include "codec/ec.h"

#include <errno.h>
#include <string.h>

#include <isa-l/erasure_code.h>

#include "base/base.h"

int ec_init(struct ec *ec, uint32_t data_count, uint32_t parity_count)
{
	if (data_count < 1 || data_count > EC_DATA_MAX)
		return -EINVAL;
	if (parity_count < 1 || parity_count > EC_PARITY_MAX)
		return -EINVAL;
	ec->data_count = data_count;
	ec->parity_count = parity_count;
	gf_gen_cauchy1_matrix(ec->matrix, (int)(data_count + parity_count), (int)data_count);
	ec_init_tables((int)data_count, (int)parity_count, ec->matrix + data_count * data_count,
		ec->tables);
	return 0;
}

/* ISA-L declares neither its sources nor its tables const, and writes to neither. */
static void run(size_t shard_bytes, uint32_t source_count, uint32_t row_count,
	const uint8_t *tables, uint8_t **sources, uint8_t **rows)
{
	ec_encode_data((int)shard_bytes, (int)source_count, (int)row_count,
		(uint8_t *)(uintptr_t)tables, sources, rows);
}

int ec_encode(const struct ec *ec, size_t shard_bytes, const void *const *data, void *const *parity)
{
	uint8_t *sources[EC_DATA_MAX], *rows[EC_PARITY_MAX];

	if (shard_bytes < 1 || shard_bytes > EC_SHARD_BYTES_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < ec->data_count; i++)
		sources[i] = (uint8_t *)(uintptr_t)data[i];
	for (uint32_t i = 0; i < ec->parity_count; i++)
		rows[i] = parity[i];
	run(shard_bytes, ec->data_count, ec->parity_count, ec->tables, sources, rows);
	return 0;
}

/* row (1 by n) times square (n by n). */
static void multiply_row(const uint8_t *row, const uint8_t *square, uint32_t n, uint8_t *ret_row)
{
	for (uint32_t column = 0; column < n; column++) {
		uint8_t sum = 0;

		for (uint32_t i = 0; i < n; i++)
			sum ^= gf_mul(row[i], square[i * n + column]);
		ret_row[column] = sum;
	}
}

int ec_plan_init(struct ec_plan *plan, const struct ec *ec, uint32_t have, uint32_t want)
{
	uint32_t data_count = ec->data_count, shard_count = data_count + ec->parity_count;
	uint8_t square[EC_DATA_MAX * EC_DATA_MAX], inverse[EC_DATA_MAX * EC_DATA_MAX];
	uint8_t rows[EC_PARITY_MAX * EC_DATA_MAX];
	uint32_t source = 0, source_count = 0, want_count = 0;
	int singular;

	if ((have | want) >> shard_count || have & want)
		return -EINVAL;
	if ((uint32_t)__builtin_popcount(have) < data_count)
		return -ENODATA;
	/* The lowest shards are chosen: a data shard's row is a row of the identity, which costs
	 * nothing to invert.
	 */
	for (uint32_t i = 0; source_count < data_count; i++) {
		if (have >> i & 1) {
			memcpy(square + source_count++ * data_count, ec->matrix + i * data_count,
				data_count);
			source |= 1u << i;
		}
	}
	singular = gf_invert_matrix(square, inverse, (int)data_count);
	CHECK(!singular);
	for (uint32_t i = 0; i < shard_count; i++) {
		if (want >> i & 1)
			multiply_row(ec->matrix + i * data_count, inverse, data_count,
				rows + want_count++ * data_count);
	}
	plan->data_count = data_count;
	plan->source = source;
	plan->want = want;
	if (want_count)
		ec_init_tables((int)data_count, (int)want_count, rows, plan->tables);
	return 0;
}

int ec_plan_run(const struct ec_plan *plan, size_t shard_bytes, void *const *shards)
{
	uint8_t *sources[EC_DATA_MAX], *rows[EC_PARITY_MAX];
	uint32_t source_count = 0, row_count = 0;

	if (shard_bytes < 1 || shard_bytes > EC_SHARD_BYTES_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < EC_SHARDS_MAX; i++) {
		if (plan->source >> i & 1)
			sources[source_count++] = shards[i];
		else if (plan->want >> i & 1)
			rows[row_count++] = shards[i];
	}
	if (row_count)
		run(shard_bytes, plan->data_count, row_count, plan->tables, sources, rows);
	return 0;
}

int ec_reconstruct(
	const struct ec *ec, size_t shard_bytes, void *const *shards, uint32_t have, uint32_t want)
{
	struct ec_plan plan;
	int err = ec_plan_init(&plan, ec, have, want);

	return err ? err : ec_plan_run(&plan, shard_bytes, shards);
}
