package transfer

import (
	"strings"
	"testing"

	"github.com/probate-dev/probate/transfer/move"
)

// TestS3Sink is about which objects an address may name.
func TestS3Sink(t *testing.T) {
	t.Parallel()
	c, err := Catalogue{Sinks: Sinks{S3: []S3Store{
		{Endpoint: "https://one.example", Bucket: "inbox"},
		{Endpoint: "https://two.example", Bucket: "ours", Exclusive: true},
		{Endpoint: "https://any.example"},
	}}}.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, a := range map[string]struct {
		endpoint   string
		properties map[string]string
		want       move.S3Sink
		says       string
	}{
		"ByItsBucketAlone":       {"", map[string]string{"bucketName": "inbox", "keyName": "a/b"}, move.S3Sink{Bucket: "inbox", Key: "a/b"}, ""},
		"ThatIsExclusive":        {"", map[string]string{"bucketName": "ours", "objectName": "k"}, move.S3Sink{Bucket: "ours", Key: "k", Exclusive: true}, ""},
		"InAnyBucketOfItsStore":  {"https://any.example", map[string]string{"bucketName": "inbox", "keyName": "k"}, move.S3Sink{Bucket: "inbox", Key: "k"}, ""},
		"InAStoreOfItsOwnChoice": {"", map[string]string{"bucketName": "b", "keyName": "k", "endpointOverride": "https://any.example"}, move.S3Sink{Bucket: "b", Key: "k"}, ""},
		"OfAnotherStore":         {"https://evil.example", map[string]string{"bucketName": "inbox", "keyName": "k"}, move.S3Sink{}, "in no store"},
		"OfAnotherBucket":        {"https://one.example", map[string]string{"bucketName": "ours", "keyName": "k"}, move.S3Sink{}, "in no store"},
		"WithoutAKey":            {"", map[string]string{"bucketName": "inbox"}, move.S3Sink{}, "want the properties"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := &DataAddress{EndpointType: "AmazonS3", Endpoint: a.endpoint}
			for name, value := range a.properties {
				address.Properties = append(address.Properties, EndpointProperty{Name: name, Value: value})
			}
			got, err := c.Sink(Task{Start: &Message{DataAddress: address}})
			if a.says != "" {
				if err == nil || !strings.Contains(err.Error(), a.says) {
					t.Errorf("%v, %v; want %q", got, err, a.says)
				}
				return
			}
			sink, ok := got.(move.S3Sink)
			if sink.Store = nil; err != nil || !ok || sink != a.want {
				t.Errorf("%+v, %v; want %+v", got, err, a.want)
			}
		})
	}
}
