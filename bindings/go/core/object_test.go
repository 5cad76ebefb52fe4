package core

import (
	"encoding/xml"
	"testing"
)

// A server may pass over that the client wants keys percent-encoded.
func TestListEncoding(t *testing.T) {
	const entries = "<Contents><Key>a+%41</Key></Contents><CommonPrefixes><Prefix>b+/</Prefix></CommonPrefixes>"
	for _, list := range []struct{ text, key, prefix string }{
		{entries, "a+%41", "b+/"},
		{entries + "<EncodingType>url</EncodingType>", "a A", "b /"},
	} {
		page := &listPage{}
		if err := xml.Unmarshal([]byte("<ListBucketResult>"+list.text+"</ListBucketResult>"), page); err != nil {
			t.Fatal(err)
		}
		if err := page.decode(); err != nil {
			t.Fatal(err)
		}
		if page.Contents[0].Key != list.key || page.CommonPrefixes[0].Prefix != list.prefix {
			t.Errorf("%s: %+v", list.text, page)
		}
	}
}
