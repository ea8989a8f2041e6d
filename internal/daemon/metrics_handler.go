package daemon

import "net/http"

func metricsHandler(*source) http.Handler { return http.NotFoundHandler() }
