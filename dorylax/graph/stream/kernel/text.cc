// Tables of text: lines of integers, numbers and names to arrays. Called by dorylax/graph/stream/lines.py, which says what
// the arguments are and has the same in Python.
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

namespace {

enum Kind : int32_t { kSkip = 0, kInteger = 1, kNumber = 2, kName = 3 };
enum Fault : int64_t { kFine = 0, kTooFew = 1, kTooMany = 2, kBad = 3, kTooLarge = 4, kQuote = 5 };

struct Field {
  const char* begin;
  const char* end;
};

// Characters around fields, where `separator` is 0 any blanks and at most one comma or semicolon.
class Line {
 public:
  Line(const char* at, const char* end, char separator) : at_(at), end_(end), separator_(separator) { skip_blanks(); }

  bool ended() const { return at_ == end_; }
  const char* at() const { return at_; }
  const char* end() const { return end_; }
  void to(const char* at) { at_ = at; }

  // Past what follows a field; false where it is no separator. `more` says whether another field must follow.
  bool past_separator(bool* more) {
    const char* before = at_;
    skip_blanks();
    *more = false;
    if (at_ == end_) return true;
    if (separator_ ? *at_ == separator_ : (*at_ == ',' || *at_ == ';')) {
      ++at_;
      skip_blanks();
      *more = true;
      return true;
    }
    *more = true;
    return separator_ == 0 && at_ != before;
  }

  // The field here, without quotes; false where a quote is not closed or something follows it.
  bool field(Field* found) {
    if (at_ != end_ && *at_ == '"') {
      const char* close = static_cast<const char*>(std::memchr(at_ + 1, '"', end_ - at_ - 1));
      if (close == nullptr) return false;
      *found = {at_ + 1, close};
      at_ = close + 1;
      return at_ == end_ || is_end(*at_);
    }
    found->begin = at_;
    while (at_ != end_ && !is_separator(*at_)) ++at_;
    found->end = at_;
    while (found->end != found->begin && is_blank(found->end[-1])) --found->end;
    return true;
  }

  bool is_end(char c) const { return is_separator(c) || is_blank(c); }

 private:
  bool is_blank(char c) const { return (c == ' ' || c == '\t' || c == '\r') && c != separator_; }
  bool is_separator(char c) const {
    return separator_ ? c == separator_ : (c == ' ' || c == '\t' || c == '\r' || c == ',' || c == ';');
  }
  void skip_blanks() {
    while (at_ != end_ && is_blank(*at_)) ++at_;
  }
  const char* at_;
  const char* end_;
  char separator_;
};

// An integer at `at`, as far as it goes.
Fault integer(const char** at, const char* end, int64_t* out) {
  const char* p = *at;
  const bool negative = p != end && *p == '-';
  if (p != end && (*p == '-' || *p == '+')) ++p;
  const char* first = p;
  uint64_t value = 0;
  bool fits = true;
  for (; p != end && static_cast<unsigned char>(*p - '0') < 10; ++p) {
    const uint64_t digit = *p - '0';
    if (value > (~uint64_t{0} - digit) / 10) fits = false;
    value = value * 10 + digit;
  }
  if (p == first) return kBad;
  *at = p;
  if (!fits || value > (uint64_t{1} << 63) - (negative ? 0 : 1)) return kTooLarge;
  *out = static_cast<int64_t>(negative ? uint64_t{0} - value : value);
  return kFine;
}

// A number that is all of a field.
Fault number(Field field, double* out) {
  const char* begin = field.begin;
  if (begin != field.end && *begin == '+') ++begin;
  if (begin == field.end || (begin != field.begin && *begin == '-')) return kBad;
#if defined(__cpp_lib_to_chars)
  const auto [rest, error] = std::from_chars(begin, field.end, *out);
  if (error == std::errc() && rest == field.end) return kFine;
  if (error != std::errc::result_out_of_range || rest != field.end) return kBad;
#endif
  const std::string copy(begin, field.end);
  char* stop = nullptr;
  *out = std::strtod(copy.c_str(), &stop);
  return stop == copy.c_str() + copy.size() ? kFine : kBad;
}

uint64_t mixed(uint64_t word) {  // SplitMix64's finaliser, as dorylax/graph/fingerprint.py has it
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
  return word ^ (word >> 31);
}

uint64_t hash(Field field, uint64_t seed) {
  uint64_t state = mixed(seed + (field.end - field.begin));
  for (const char* p = field.begin; p < field.end; p += 8) {
    uint64_t word = 0;
    std::memcpy(&word, p, p + 8 <= field.end ? 8 : field.end - p);
    state = mixed(state ^ word) + 0x9E3779B97F4A7C15u;
  }
  return mixed(state);
}

}  // namespace

extern "C" {

// Parses whole lines. info: what is wrong, where that line begins, in which column, lines seen.
__attribute__((visibility("default"))) int64_t dorylax_stream_parse(const char* text, int64_t size, int32_t separator,
                                                                    int32_t columns, const int32_t* kinds,
                                                                    void* const* outs, uint64_t seed, int64_t* info) {
  const char* const end = text + size;
  int64_t rows = 0, lines = 0;
  for (const char* begin = text; begin < end; ++lines) {
    const char* stop = static_cast<const char*>(std::memchr(begin, '\n', end - begin));
    if (stop == nullptr) stop = end;
    Line line(begin, stop, static_cast<char>(separator));
    if (line.ended() || *line.at() == '#' || *line.at() == '%') {
      begin = stop + 1;
      continue;
    }
    Fault fault = kFine;
    bool more = true;
    int32_t column = 0;
    for (; column < columns && fault == kFine; ++column) {
      if (!more) {
        fault = kTooFew;
        break;
      }
      if (kinds[column] == kInteger && !line.ended() && *line.at() != '"') {
        const char* at = line.at();
        fault = integer(&at, line.end(), static_cast<int64_t*>(outs[column]) + rows);
        if (fault == kFine && at != line.end() && !line.is_end(*at)) fault = kBad;
        line.to(at);
      } else {
        Field field{};
        if (!line.field(&field)) {
          fault = kQuote;
        } else if (kinds[column] == kInteger) {
          const char* at = field.begin;
          fault = integer(&at, field.end, static_cast<int64_t*>(outs[column]) + rows);
          if (fault == kFine && at != field.end) fault = kBad;
        } else if (kinds[column] == kNumber) {
          fault = number(field, static_cast<double*>(outs[column]) + rows);
        } else if (kinds[column] == kName) {
          if (field.begin == field.end) fault = kBad;
          int64_t* out = static_cast<int64_t*>(outs[column]) + 4 * rows;
          out[0] = static_cast<int64_t>(hash(field, seed));
          out[1] = static_cast<int64_t>(hash(field, ~seed));
          out[2] = field.begin - text;
          out[3] = field.end - field.begin;
        }
      }
      if (fault == kFine && !line.past_separator(&more)) fault = kBad;
      if (fault != kFine) break;
    }
    if (fault == kFine && more) fault = kTooMany;
    if (fault != kFine) {
      info[0] = fault;
      info[1] = begin - text;
      info[2] = column;
      info[3] = lines;
      return rows;
    }
    ++rows;
    begin = stop + 1;
  }
  info[0] = kFine;
  info[3] = lines;
  return rows;
}

// The hashes of names that are in one text; as parsing has them.
__attribute__((visibility("default"))) void dorylax_stream_hash(int64_t n, const char* text, int64_t* names,
                                                                uint64_t seed) {
  for (int64_t i = 0; i < n; ++i) {
    int64_t* name = names + 4 * i;
    const Field field{text + name[2], text + name[2] + name[3]};
    name[0] = static_cast<int64_t>(hash(field, seed));
    name[1] = static_cast<int64_t>(hash(field, ~seed));
  }
}

}  // extern "C"
