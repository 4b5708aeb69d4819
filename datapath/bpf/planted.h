/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

/*
 * Faults for tests: an object that is compiled with one of them as 1 must be detected by the comparison of the programs
 * with the tables. In the object of a release all are 0.
 */

/* The row of another class is read. */
#ifndef PLANTED_KEY
#define PLANTED_KEY 0
#endif

/* A place of `sent` counts, although a later packet has taken it. */
#ifndef PLANTED_TICKET
#define PLANTED_TICKET 0
#endif

/* Egress is judged at the address that was asked for. */
#ifndef PLANTED_ADDRESS
#define PLANTED_ADDRESS 0
#endif

/* A connection is not judged again by a later generation. */
#ifndef PLANTED_GENERATION
#define PLANTED_GENERATION 0
#endif
