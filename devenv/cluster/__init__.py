"""A cluster with real kubelets and containers on one machine, for ``make e2e-cluster``.

Everything runs in namespaces of one process (``capsule``), so that the end of this process ends everything: processes,
networks, mounts and data. Only control groups need to be removed (``cgroups``).

==================  ====================================================================================================
``__main__``        command line: builds what is missing, starts the capsule, and says where the logs are
``builds``          programs, the file system of the nodes, and the images, all from the cache
``archives``        images as archives, written without a container engine
``capsule``         the namespaces, and the process that runs in them
``inside``          everything that happens there, from the start of the cluster to the table
``layout``          names and addresses
``network``         a router, the network of the nodes and the one of the clients
``controlplane``    etcd, API server and controllers of the guest cluster and of Harvester
``harvester``       Harvester's side: the emulator (``emulated``) or its real programs
``nodes``           containerd, kubelet and kube-proxy in the namespaces of a node (``nodespace``)
``cluster``         all parts together, and what an operator does with them
``story``           the steps of an operator, one after the other
``traffic``         requests of a client during a step
``specs``           Kubernetes' own tests of LoadBalancer Services
``report``          the table
==================  ====================================================================================================
"""
