// A register of floats, of the widest kind that this module is compiled for, and dot products of bytes in it.
//
// One lane is one column of a result, so that no operation adds lanes up: whatever the width, and however many rows are
// computed together, a result is the same sum in the same order. -ffp-contract=off keeps the compiler from fusing more
// multiplications and additions than are written here.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace sluicegate {

#if defined(__AVX512F__)

constexpr int kLanes = 16;

struct Lanes {
    __m512 values;

    static Lanes zero() { return {_mm512_setzero_ps()}; }
    static Lanes all(float value) { return {_mm512_set1_ps(value)}; }
    static Lanes load(const float* from) { return {_mm512_loadu_ps(from)}; }
    static Lanes load(const uint16_t* halves) { return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)halves))}; }
    static Lanes load_first(const float* from, int count) { return {_mm512_maskz_loadu_ps(first(count), from)}; }
    void store(float* to) const { _mm512_storeu_ps(to, values); }
    void store(uint16_t* halves) const {
        _mm256_storeu_si256((__m256i*)halves, _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
    }
    void store_first(float* to, int count) const { _mm512_mask_storeu_ps(to, first(count), values); }

    Lanes operator+(Lanes other) const { return {_mm512_add_ps(values, other.values)}; }
    Lanes operator-(Lanes other) const { return {_mm512_sub_ps(values, other.values)}; }
    Lanes operator*(Lanes other) const { return {_mm512_mul_ps(values, other.values)}; }
    Lanes operator/(Lanes other) const { return {_mm512_div_ps(values, other.values)}; }
    // of a pair that is not ordered, `other`: constants come first, so that NaN stays NaN
    Lanes max(Lanes other) const { return {_mm512_max_ps(values, other.values)}; }
    Lanes min(Lanes other) const { return {_mm512_min_ps(values, other.values)}; }
    Lanes absolute() const { return {_mm512_abs_ps(values)}; }
    Lanes rounded() const { return {_mm512_roundscale_ps(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
    // this * factor + term, rounded once
    Lanes times_plus(Lanes factor, Lanes term) const { return {_mm512_fmadd_ps(values, factor.values, term.values)}; }
    // 2^this for whole numbers in [-126, 127]
    Lanes power_of_two() const {
        __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(values), _mm512_set1_epi32(127));
        return {_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
    }
    // where this < bound: `then`, elsewhere (also where this is NaN) `otherwise`
    Lanes if_less(Lanes bound, Lanes then, Lanes otherwise) const {
        __mmask16 less = _mm512_cmp_ps_mask(values, bound.values, _CMP_LT_OQ);
        return {_mm512_mask_blend_ps(less, otherwise.values, then.values)};
    }
    // of numbers that are not negative; NaN is larger than all others
    Lanes max_or_nan(Lanes other) const {
        return {_mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(values), _mm512_castps_si512(other.values)))};
    }
    float largest_or_nan() const {
        return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(_mm512_castps_si512(values)))));
    }
    float sum() const { return _mm512_reduce_add_ps(values); }
    float largest() const { return _mm512_reduce_max_ps(values); }
    // puts the lanes there, rounded to the nearest, as signed bytes; returns their sum
    int32_t store_bytes(int8_t* to) const {
        __m512i whole = _mm512_cvtps_epi32(values);
        _mm_storeu_si128((__m128i*)to, _mm512_cvtsepi32_epi8(whole));
        return _mm512_reduce_add_epi32(whole);
    }

   private:
    static __mmask16 first(int count) { return (__mmask16)((1u << count) - 1); }
};

// Four unsigned weights for each lane.
struct Bytes {
    __m512i values;

    static Bytes load(const uint8_t* from) { return {_mm512_loadu_si512(from)}; }
    Bytes low_nibbles() const { return {_mm512_and_si512(values, _mm512_set1_epi8(15))}; }
    Bytes high_nibbles() const {
        return {_mm512_and_si512(_mm512_srli_epi16(values, 4), _mm512_set1_epi8(15))};
    }
};

// Integer sums of weights of so many bits times signed activations, the same four for all lanes.
template <int bits>
struct Dot {
    __m512i sums;

    void start(int32_t from) { sums = _mm512_set1_epi32(from); }
    void add(Bytes weights, const int8_t* four_activations) {
        // Of the intrinsic GCC makes two instructions.
        asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(weights.values), "m"(*(const int8_t(*)[4])four_activations));
    }
    Lanes result() const { return {_mm512_cvtepi32_ps(sums)}; }
    // What `start` must add for the sum of activations that the weights meet.
    static int32_t correction(int32_t) { return 0; }
};

#elif defined(__AVX2__)

constexpr int kLanes = 8;

struct Lanes {
    __m256 values;

    static Lanes zero() { return {_mm256_setzero_ps()}; }
    static Lanes all(float value) { return {_mm256_set1_ps(value)}; }
    static Lanes load(const float* from) { return {_mm256_loadu_ps(from)}; }
    static Lanes load(const uint16_t* halves) { return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)halves))}; }
    static Lanes load_first(const float* from, int count) { return {_mm256_maskload_ps(from, first(count))}; }
    void store(float* to) const { _mm256_storeu_ps(to, values); }
    void store(uint16_t* halves) const {
        _mm_storeu_si128((__m128i*)halves, _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
    }
    void store_first(float* to, int count) const { _mm256_maskstore_ps(to, first(count), values); }

    Lanes operator+(Lanes other) const { return {_mm256_add_ps(values, other.values)}; }
    Lanes operator-(Lanes other) const { return {_mm256_sub_ps(values, other.values)}; }
    Lanes operator*(Lanes other) const { return {_mm256_mul_ps(values, other.values)}; }
    Lanes operator/(Lanes other) const { return {_mm256_div_ps(values, other.values)}; }
    // of a pair that is not ordered, `other`: constants come first, so that NaN stays NaN
    Lanes max(Lanes other) const { return {_mm256_max_ps(values, other.values)}; }
    Lanes min(Lanes other) const { return {_mm256_min_ps(values, other.values)}; }
    Lanes absolute() const { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), values)}; }
    Lanes rounded() const { return {_mm256_round_ps(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
    // this * factor + term, rounded once
    Lanes times_plus(Lanes factor, Lanes term) const { return {_mm256_fmadd_ps(values, factor.values, term.values)}; }
    // 2^this for whole numbers in [-126, 127]
    Lanes power_of_two() const {
        __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(values), _mm256_set1_epi32(127));
        return {_mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23))};
    }
    // where this < bound: `then`, elsewhere (also where this is NaN) `otherwise`
    Lanes if_less(Lanes bound, Lanes then, Lanes otherwise) const {
        __m256 less = _mm256_cmp_ps(values, bound.values, _CMP_LT_OQ);
        return {_mm256_blendv_ps(otherwise.values, then.values, less)};
    }
    float sum() const {
        __m128 four = _mm_add_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1));
        four = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
    }
    float largest() const {
        __m128 four = _mm_max_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1));
        four = _mm_max_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
    }
    // of numbers that are not negative; NaN is larger than all others
    Lanes max_or_nan(Lanes other) const {
        return {_mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(values), _mm256_castps_si256(other.values)))};
    }
    float largest_or_nan() const {
        __m256i bits = _mm256_castps_si256(values);
        __m128i four = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
        four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
        return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1))));
    }
    // puts the lanes there, rounded to the nearest, as signed bytes; returns their sum
    int32_t store_bytes(int8_t* to) const {
        __m256i whole = _mm256_cvtps_epi32(values);
        __m128i low = _mm256_castsi256_si128(whole), high = _mm256_extracti128_si256(whole, 1);
        __m128i words = _mm_packs_epi32(low, high);
        _mm_storel_epi64((__m128i*)to, _mm_packs_epi16(words, words));
        __m128i four = _mm_add_epi32(low, high);
        four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
        return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
    }

   private:
    static __m256i first(int count) {
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }
};

// Four unsigned weights for each lane.
struct Bytes {
    __m256i values;

    static Bytes load(const uint8_t* from) { return {_mm256_loadu_si256((const __m256i*)from)}; }
    Bytes low_nibbles() const { return {_mm256_and_si256(values, _mm256_set1_epi8(15))}; }
    Bytes high_nibbles() const {
        return {_mm256_and_si256(_mm256_srli_epi16(values, 4), _mm256_set1_epi8(15))};
    }
};

inline __m256i everywhere(const int8_t* four_activations) {
    int32_t together;
    std::memcpy(&together, four_activations, sizeof together);
    return _mm256_set1_epi32(together);
}

template <int bits>
struct Dot;

// Eight products of a nibble and a byte fit in 16 bits: they are widened once, at the end of a block of 32.
template <>
struct Dot<4> {
    __m256i words;
    int32_t from;

    void start(int32_t value) {
        words = _mm256_setzero_si256();
        from = value;
    }
    void add(Bytes weights, const int8_t* four_activations) {
        words = _mm256_add_epi16(words, _mm256_maddubs_epi16(weights.values, everywhere(four_activations)));
    }
    Lanes result() const {
        __m256i sums = _mm256_madd_epi16(words, _mm256_set1_epi16(1));
        return {_mm256_cvtepi32_ps(_mm256_add_epi32(sums, _mm256_set1_epi32(from)))};
    }
    static int32_t correction(int32_t) { return 0; }
};

// Two products of unsigned bytes may not fit: of weights less 128 they do, and `start` makes up for that.
template <>
struct Dot<8> {
    __m256i sums;

    void start(int32_t from) { sums = _mm256_set1_epi32(from); }
    void add(Bytes weights, const int8_t* four_activations) {
        __m256i centred = _mm256_xor_si256(weights.values, _mm256_set1_epi8(-128));
        __m256i signed_activations = _mm256_sign_epi8(everywhere(four_activations), centred);
        __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(centred), signed_activations);
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    Lanes result() const { return {_mm256_cvtepi32_ps(sums)}; }
    static int32_t correction(int32_t sum_of_activations) { return 128 * sum_of_activations; }
};

#endif

inline void prefetch(const void* from) { _mm_prefetch((const char*)from, _MM_HINT_T0); }

// e^x to the last bit or two for x <= 88; 0 below -87. Cephes' polynomial (expf.c).
inline Lanes exponential(Lanes x) {
    Lanes bounded = Lanes::all(88.0f).min(Lanes::all(-87.0f).max(x));
    Lanes power = (bounded * Lanes::all(1.44269504088896341f)).rounded();
    Lanes rest = power.times_plus(Lanes::all(-0.693359375f), bounded);
    rest = power.times_plus(Lanes::all(2.12194440e-4f), rest);
    Lanes sum = Lanes::all(1.9875691500e-4f).times_plus(rest, Lanes::all(1.3981999507e-3f));
    sum = sum.times_plus(rest, Lanes::all(8.3334519073e-3f));
    sum = sum.times_plus(rest, Lanes::all(4.1665795894e-2f));
    sum = sum.times_plus(rest, Lanes::all(1.6666665459e-1f));
    sum = sum.times_plus(rest, Lanes::all(5.0000001201e-1f));
    sum = sum.times_plus(rest * rest, rest) + Lanes::all(1.0f);
    return x.if_less(Lanes::all(-87.0f), Lanes::zero(), sum * power.power_of_two());
}

// tanh x = 1 - 2 / (e^2x + 1)
inline Lanes hyperbolic_tangent(Lanes x) {
    Lanes one = Lanes::all(1.0f), two = Lanes::all(2.0f);
    Lanes bounded = Lanes::all(30.0f).min(Lanes::all(-30.0f).max(x));
    return one - two / (exponential(two * bounded) + one);
}

}  // namespace sluicegate
