package tokenizer

import "unicode/utf8"

// The byte-level alphabet of GPT-2 (Radford et al. 2019): every byte has one
// printable code point, its own where Latin-1 has a printable one, else the
// next free one from U+0100.
var (
	byteRune = byteAlphabet()
	runeByte = invertAlphabet(byteRune)
)

func byteAlphabet() (out [256]rune) {
	free := rune(256)
	for b := range out {
		switch r := rune(b); {
		case r >= '!' && r <= '~', r >= 0xA1 && r <= 0xAC, r >= 0xAE:
			out[b] = r
		default:
			out[b] = free
			free++
		}
	}
	return out
}

// invertAlphabet gives the byte of each code point below 512, -1 for none.
func invertAlphabet(runes [256]rune) (out [512]int16) {
	for i := range out {
		out[i] = -1
	}
	for b, r := range runes {
		out[r] = int16(b)
	}
	return out
}

// appendByteLevel appends the alphabet's spelling of each byte of s.
func appendByteLevel(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = utf8.AppendRune(dst, byteRune[s[i]])
	}
	return dst
}

// appendFromByteLevel appends the bytes that token spells; a token with any
// character outside the alphabet stands for itself.
func appendFromByteLevel(dst []byte, token string) []byte {
	n := len(dst)
	for _, r := range token {
		if r >= 512 || runeByte[r] < 0 {
			return append(dst[:n], token...)
		}
		dst = append(dst, byte(runeByte[r]))
	}
	return dst
}
