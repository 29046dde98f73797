// In place of a module that is not published for this version and of which nothing is built.
module k8s.io/absent

go 1.17
