// Package milblob reads and writes MILBlob v2 files, the weight.bin of a model
// package.
//
// A file is a 64-byte header (u32 blob count, u32 version 2, zeros) followed by
// records. Each record starts at a multiple of 64 with 64 bytes of metadata (u32
// sentinel 0xDEADBEEF, u32 dtype, u64 size in bytes, u64 absolute data offset, u64
// unused bits in the last byte, zeros); its data follow at once. Gaps are zero and
// nothing follows the last record. All numbers are little-endian. A blob is
// addressed by the offset of its metadata.
//
// Elements narrower than a byte form one contiguous stream, least significant bit
// first, so a 3- or 6-bit element may straddle two bytes (see Pack).
//
// The reader is strict: a file it opens has only records that lie inside the file,
// in order and without overlap. The writer streams: it never holds a blob in
// memory, and it stores equal blobs once.
package milblob
