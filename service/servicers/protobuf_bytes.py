"""The little of protobuf's encoding that is written by hand here, where making messages would cost too much."""

_LENGTH_DELIMITED = 2


def varint(number: int) -> bytes:
    """``number``, which is not negative: seven bits a byte, the lowest first."""
    if number < 0x80:
        return _ONE_BYTE[number]
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def number_tag(field_number: int) -> bytes:
    """How a field that is an integer begins; a varint follows."""
    return varint(field_number << 3)


def bytes_tag(field_number: int) -> bytes:
    """How a field of text, bytes, a message or packed numbers begins; its length, a varint, and then itself follow."""
    return varint(field_number << 3 | _LENGTH_DELIMITED)


_ONE_BYTE = [bytes([number]) for number in range(0x80)]
