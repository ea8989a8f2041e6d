module github.com/gorxe/gorxe

go 1.26.0
