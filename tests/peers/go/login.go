package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// How franz-go logs in, by environment variables:
//
//	CLIENT_MECHANISM=SCRAM-SHA-256 CLIENT_USER=alice CLIENT_PASSWORD=... CLIENT_CA=/path/of/certificate
//
// The password of OAUTHBEARER is a token.
func franzLogin() []kgo.Opt {
	user, password := os.Getenv("CLIENT_USER"), os.Getenv("CLIENT_PASSWORD")
	mechanisms := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: user, Pass: password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: user, Pass: password}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: user, Pass: password}.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: password}.AsMechanism(),
	}
	var options []kgo.Opt
	if mechanism, known := mechanisms[os.Getenv("CLIENT_MECHANISM")]; known {
		options = append(options, kgo.SASL(mechanism))
	}
	if path := os.Getenv("CLIENT_CA"); path != "" {
		pem, err := os.ReadFile(path)
		trusted := x509.NewCertPool()
		if err != nil || !trusted.AppendCertsFromPEM(pem) {
			panic(fmt.Sprintf("%s is not a certificate: %v", path, err))
		}
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}))
	}
	return options
}
